"""The demo at a small size: every sentence and every figure follows from what is stored."""

import numpy as np
import pytest

import noisegate as ng
from noisegate.studies import papers
from noisegate.studies.execute import execute
from noisegate.studies.papers.demo import story
from noisegate.studies.report import write_report
from noisegate.studies.results import Results
from noisegate.studies.store import Store

QUICK = {"recipe.epochs": 6, "recipe.batch_size": 64}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    study = papers.get("demo").only(["ce", "ln"], ["digits-80-epochs", "two-moons"]).with_seeds(1)
    found = Results(study.with_changes(QUICK), Store(tmp_path_factory.mktemp("demo") / "store"))
    for run in found.planned():
        assert execute(run, found.store, "cpu").kind == "finished"
    return found


def test_the_numbers_are_those_of_training_again(results):
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=0)
    wrong = int((data.train.y != data.train.clean).sum())
    fitted = ng.train(data, "ln", "mlp", ng.Recipe(epochs=6, batch_size=64), seed=0, device="cpu")
    run = story.digits(results)["LN"]
    assert run.metrics["test_accuracy"] == pytest.approx(fitted.metrics["test_accuracy"], abs=0.01)
    first, _, course, *_ = story.findings(results)
    assert first.startswith(f"{wrong:,} of {len(data.train):,} training labels are wrong")
    assert f"of the {wrong:,} wrong labels" in course
    assert f"{run.metrics['test_accuracy']:.1%}" in course
    arrays = results.store.arrays(run.key)
    accuracy = np.mean(arrays["test_probs"].argmax(1) == arrays["test_labels"])
    assert accuracy == pytest.approx(run.metrics["test_accuracy"])
    rows = np.flatnonzero(data.train.y != data.train.clean)[:12]
    np.testing.assert_array_equal(arrays["wrong_given"], data.train.y[rows])
    np.testing.assert_array_equal(arrays["wrong_clean"], data.train.clean[rows])


def test_sentences_and_figures_are_in_the_report(results, tmp_path):
    report = write_report(results, tmp_path)
    assert report.missing == ()
    pictures = {path.stem for path in report.files if path.suffix == ".png"}
    assert pictures == {
        f"demo-{n}" for n in ("accuracy", "memorised", "moons", "reliability", "wrong-digits")
    }
    page = (tmp_path / "report.md").read_text()
    assert "## What happened" in page
    assert all(sentence.split(". ")[0] in page for sentence in story.findings(results))


def test_figures_of_columns_that_are_not_chosen_are_left_out(results, tmp_path):
    alone = Results(results.study.only((), ["two-moons"]), results.store)
    report = write_report(alone, tmp_path)
    assert {path.stem for path in report.files if path.suffix == ".png"} == {"demo-moons"}
    assert story.findings(alone) == []


def made_up(curve, memorised, ece):
    about = {"rows": {"train": 1347}, "noise": {"train_rate": 0.4}}
    metrics = {"test_accuracy": curve[-1], "train_memorised": memorised, "test_ece": ece}
    history = [[{"test_accuracy": value} for value in curve]]
    return type("Run", (), {"about": about, "metrics": metrics, "history": history})


def test_sentences_follow_the_numbers(monkeypatch):
    runs = {"CE": made_up([0.7, 0.92, 0.75], 1.0, 0.05), "LN": made_up([0.6, 0.9, 0.9], 0.1, 0.1)}
    monkeypatch.setattr(story, "digits", lambda results: runs)
    start, ce, ln, gap, calibration = story.findings(None)
    assert start == "539 of 1,347 training labels are wrong (40.0%)."
    assert "reaches 92.0% in epoch 2 and loses 17.0 points" in ce
    assert "repeats 539 of the 539 wrong labels" in ce
    assert "ends at 90.0%, within a point of its best epoch" in ln
    assert gap == "At the end Logistic-Normal is 15.0 percentage points more accurate than cross-entropy."
    assert calibration.endswith("cross-entropy, 5.0%; the most accurate, Logistic-Normal, has 10.0%.")
    runs["LN"] = made_up([0.75], 0.1, 0.01)
    *_, gap, calibration = story.findings(None)
    assert gap == "At the end the methods are equally accurate."
