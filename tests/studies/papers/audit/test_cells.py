"""The study of audits."""

import dataclasses

import numpy as np
import pytest

import noisegate as ng
from noisegate.auditing.detectors import DETECTORS
from noisegate.quality import judge
from noisegate.studies import papers
from noisegate.studies.execute import execute, make_run
from noisegate.studies.papers.audit.findings import findings
from noisegate.studies.report import write_report
from noisegate.studies.results import Results
from noisegate.studies.store import Store
from noisegate.studies.study import RunSettings

STUDY = papers.get("audit-quality")


def test_every_detector_meets_every_data_set():
    trained = [row for row in STUDY.rows if row != "published probabilities"]
    own = [place for place in STUDY.columns if place[0] != "As published"]
    assert len(trained) == 9
    assert len(own) == 13
    assert all(STUDY.cell(row, column, group) is not None for row in trained for group, column in own)
    published = [cell for cell in STUDY if cell.row == "published probabilities"]
    assert len(published) == 6
    assert {cell.settings.detector for cell in STUDY} == set(DETECTORS)


def test_a_detector_is_part_of_the_key_and_none_changes_no_key():
    plain = RunSettings(data={"name": "digits"}, method="ce", network="mlp", recipe={"epochs": 2})
    assert "detector" not in plain.full()
    watched = [plain.replace(detector=name).key for name in ("in-training", "cross-fitted")]
    assert len({plain.key, *watched}) == 3


def test_the_recipe_of_a_detector_is_the_automatic_one_with_changes():
    cell = STUDY.cell("CE, in training", "symmetric 30 %", "Digits")
    with make_run(cell.settings.replace(recipe={"lr": 0.5}), "cpu") as run:
        recipe = run._trainer.job.recipe
    from noisegate.training.recipe import auto_recipe

    assert recipe == auto_recipe(1347, (64,)).replace(lr=0.5)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    study = STUDY.at_scale("smoke").only(
        ["neighbours-vote", "ce-in-training"], ["digits-symmetric-30", "digits-pairs-30"]
    )
    found = Results(study, Store(tmp_path_factory.mktemp("audit") / "store"))
    for run in found.planned():
        assert execute(run, found.store, "cpu").kind == "finished"
    return found


def test_the_numbers_are_those_of_an_audit(results):
    cell = next(cell for cell in results.study if cell.row == "neighbours' vote")
    data = ng.data.load("digits")
    rows = np.sort(np.random.default_rng([0, 0x0F]).permutation(len(data.train))[:400])
    data = dataclasses.replace(data, train=data.train.take(rows))
    data = data.corrupt(ng.noise.Symmetric(0.3, include_self=False), seed=0)
    report = ng.audit(data, detector="neighbours")
    found = judge(report.probs, data.train.y)
    hit = (found.is_label_issue & data.train.wrong).sum()
    (precision,) = results.values(cell, "look_precision").values()
    assert precision == pytest.approx(hit / found.is_label_issue.sum(), abs=0.01)


def test_findings_and_report_come_from_what_is_stored(results, tmp_path):
    f1 = {
        row: np.mean([[*results.values(c, "look_f1").values()] for c in results.study if c.row == row])
        for row in results.study.rows
    }
    sentences = findings(results)
    for row, value in f1.items():
        assert any(s.startswith(f"{row}: mean F1 of 2") and f"our flags {value:.1%}" in s for s in sentences)
    best = max(f1, key=f1.get)
    assert (
        f"On the 2 data sets and noises that all of these have done, mean F1 of our flags: {best}"
        in sentences[-1]
    )
    report = write_report(results, tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert report.failed == 0
    assert sentences[0] in page
    assert "contradicted_auroc" in (tmp_path / "runs.csv").read_text()


def test_without_results_there_are_no_findings(tmp_path):
    assert findings(Results(STUDY, Store(tmp_path / "store"))) == []
