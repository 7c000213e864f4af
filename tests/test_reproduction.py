"""The ledger: its tables are what the stored results say, and packing loses nothing."""

from __future__ import annotations

import importlib.util
import itertools
import lzma
import shutil
import statistics
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.studies.store import Store

FOLDER = Path(__file__).parent.parent / "reproduction"


@pytest.fixture(scope="module")
def ledger():
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("ledger", FOLDER / "ledger.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))
    del sys.modules["ledger"]


@pytest.fixture(scope="module")
def unpacked(ledger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    return folder, ledger.unpack(folder)


def test_every_stored_run_can_be_read(ledger, unpacked):
    folder, count = unpacked
    store = Store(folder)
    results = store.results()
    assert len(results) == count >= 135
    assert not store.set_aside
    assert all(result.about["hardware"] for result in results)


def test_the_tables_of_the_readme_are_those_of_the_stored_results(ledger, unpacked):
    text = (FOLDER / "README.md").read_text()
    assert ledger.BLOCK.search(text)
    # A study that is newer than the page is missing in its coverage until the tables are written again.
    before, after = ("<!-- coverage -->", "<!-- end -->")
    counted = text[text.index(before) : text.index(after)]
    again = ledger.written(text, Store(unpacked[0]))
    assert set(counted.splitlines()) <= set(again[again.index(before) : again.index(after)].splitlines())
    assert again[again.index(after) :] == text[text.index(after) :]


@pytest.fixture(scope="module")
def others(ledger):
    """The modules beside the ledger."""
    return sys.modules["sizes"], sys.modules["claims"]


def test_every_claim_is_about_cells_that_there_are(others):
    _, claims = others
    for name, tested in claims.CLAIMS.items():
        study = ng.studies.get(name).at_scale("laptop")
        shown = {value.name for value in study.values} | {None}
        for claim in tested:
            assert study.cell(*claim.more) is not None, claim
            assert study.cell(*claim.less) is not None, claim
            assert claim.value is None or claim.value.partition("@")[0] in shown


@pytest.mark.parametrize(
    ("mean", "p", "words"),
    [
        (1.0, 0.01, "**shows**"),
        (-1.0, 0.01, "**the opposite shows**"),
        (1.0, 0.2, "right sign"),
        (-1.0, None, "wrong sign"),
        (0.0, 1.0, "no difference"),
    ],
)
def test_what_a_test_says_of_a_claim(others, mean, p, words):
    assert others[1].verdict(mean, p) == words


def test_the_coverage_counts_cells(others, unpacked):
    sizes, _ = others
    lines = {line.split("`")[1]: line for line in sizes.coverage(Store(unpacked[0])) if "`" in line}
    # These two reproduce no paper.
    assert set(lines) == set(ng.studies.studies()) - {"demo", "audit-quality"}
    assert "| 81 | **81** of 81 | 5 to 10 |" in lines["ln-table1-mnist"]
    assert "| 81 | **8** of 81 | 2 to 3 |" in lines["ln-table1-cifar10"]
    assert lines["smoothing-figure2"].endswith(
        "| 60 | 0 of 60 |  | 0 of 18 |  | **18** of 18: 100 epochs | 5 |"
    )


def test_a_change_that_changes_nothing_is_not_counted(others, unpacked):
    # CausalNL has its crops at every size: only co-teaching and cross-entropy can be run with them too.
    sizes, _ = others
    cropped = [study for words, study in sizes.changed_studies() if words == "cropped"]
    words, _ = sizes._counted_changes([("cropped", study) for study in cropped], Store(unpacked[0]))
    assert words in ("", *(f"**{count}** of 4: CausalNL's crops for all" for count in range(1, 5)))


def test_a_table_can_be_of_an_epoch(others, unpacked):
    sizes, _ = others
    store, study = Store(unpacked[0]), ng.studies.get("smoothing-figure2")
    (cell,) = (c for c in sizes.sized(study, "long") if (c.row, c.column) == ("LS", "α = 0.4"))
    early = [100 * r.history[-1][19]["test_accuracy"] for r in sizes.found(cell.settings, store).values()]
    (line,) = (x for x in sizes.table(study, store, ["ls"], "long", 20) if "α = 0.4" in x)
    assert f"| {statistics.mean(early):.2f} ± {statistics.stdev(early):.2f} | 5 |" in line


def test_logits_in_numbers(ledger):
    """Four right rows at 0.3 above the mean, two wrong ones at -0.1 by their true and 0.5 by their given label."""
    edges = np.array([-0.2, 0.0, 0.2, 0.4, 0.6])
    counts = np.zeros((3, 3, 4), int)
    counts[1, 1] = counts[1, 2] = [0, 0, 4, 0]
    counts[2, 1], counts[2, 2] = [2, 0, 0, 0], [0, 0, 0, 2]
    arrays = {
        f"gap_{of}_{name}": a
        for of in ("logit", "prob")
        for name, a in (("edges", edges), ("counts", counts))
    }
    gap = ledger.pictures._gap
    # A probability is the histogram's p - 1/K, whose lowest edge is -1/K.
    assert [gap(arrays, *place) for place in ((1, 1), (2, 1), (2, 2))] == [
        "0.3; 0.50",
        "-0.1; 0.10",
        "0.5; 0.70",
    ]


def test_pre_logits_in_numbers(ledger):
    corners = np.array([[0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]])
    given, clean = np.repeat([0, 1, 2], 4), np.repeat([0, 1, 2], 4)
    at = np.repeat(corners, 4, 0)
    middle = corners.mean(0)
    clean[[3, 7, 11]] = [1, 2, 0]
    at[[3, 7, 11]] = middle + 0.25 * (corners - middle)
    arrays = {
        "prelogits": at,
        "prelogits_given": given,
        "prelogits_clean": clean,
        "prelogits_classes": np.arange(3),
    }
    spread, way = ledger.pictures._places(arrays)
    assert spread == pytest.approx(0, abs=1e-12)
    assert way == "0.25 (0.25 to 0.25)"


def test_a_search_fills_a_cell_with_its_best_candidate(others, tmp_path):
    sizes, _ = others
    study = ng.studies.get("temperature-table6").at_scale("laptop")
    cell = study.cell("Ours τ = τ*", "paper's τ* = 5", "MNIST")
    store = Store(tmp_path / "r")
    for candidate in cell.candidates():
        for seed in (0, 1):
            run = candidate.replace(seed=seed)
            score = -abs(candidate.params["temperature"] - 10.0) + seed
            content = {"versions": {}, "hardware": {}, "seconds": 1.0}
            content |= {"format": 1, "key": run.key, "settings": run.full(), "history": []}
            store.save(run, {**content, "metrics": {"validation_log_likelihood": score}}, {})
    results, words = sizes.chosen(study, cell, store)
    assert sorted(results) == [0, 1]
    assert words == ", searched: temperature 10"


def test_packing_again_makes_the_same_files(ledger, unpacked, tmp_path, monkeypatch):
    # Which runs, in which order; that they are compressed as before is the next test's.
    monkeypatch.setattr(
        ledger, "_write_archive", lambda path, _, keys: packed.update({path.name: list(keys)})
    )
    packed = {}
    counts = ledger.pack(unpacked[0], tmp_path)
    assert sum(counts.values()) == len(list((unpacked[0] / "runs").iterdir()))  # failed ones too
    stored = sorted((FOLDER / "results").glob("*.tar.xz"))
    assert sorted(packed) == [path.name for path in stored]
    for path in stored:
        with tarfile.open(path) as archive:
            assert list(dict.fromkeys(name.split("/")[0] for name in archive.getnames())) == packed[path.name]
        assert path.stat().st_size < 500_000


def test_an_archive_of_the_same_runs_is_left_as_it_is(ledger, tmp_path):
    name = "ln-table3-laptop-full.tar.xz"
    ledger.unpack(tmp_path / "runs", pattern=name)
    keys = sorted(path.name for path in (tmp_path / "runs" / "runs").iterdir())
    archive = tmp_path / name
    ledger._write_archive(archive, tmp_path / "runs" / "runs", keys)
    before = archive.stat().st_mtime_ns
    ledger._write_archive(archive, tmp_path / "runs" / "runs", keys)
    assert archive.stat().st_mtime_ns == before
    ledger._write_archive(archive, tmp_path / "runs" / "runs", keys[:1])
    assert {key for key, _ in (n.split("/") for n, _ in ledger._members(archive))} == set(keys[:1])


def test_many_runs_make_several_files(ledger, tmp_path, monkeypatch):
    name = "ln-table1-mnist-ce.tar.xz"
    count = ledger.unpack(tmp_path / "runs", pattern=name)
    ledger.pack(tmp_path / "runs", tmp_path / "one")
    stored, again = ((folder / name).read_bytes() for folder in (FOLDER / "results", tmp_path / "one"))
    assert lzma.decompress(again) == lzma.decompress(stored)
    monkeypatch.setattr(ledger, "PART", 200_000)
    assert ledger.pack(tmp_path / "runs", tmp_path / "many") == {"ln-table1-mnist-ce": count}
    assert len(list((tmp_path / "many").glob("ln-table1-mnist-ce.*tar.xz"))) > 3
    assert ledger.unpack(tmp_path / "again", tmp_path / "many") == count


def test_a_run_with_a_changed_setting_is_kept_apart(ledger, unpacked, tmp_path):
    store = Store(unpacked[0])
    of_mnist = (r for r in store.results() if r.settings["data"]["name"] == "mnist")
    result = next(r for r in of_mnist if r.settings["method"]["name"] == "ln")
    own = tmp_path / "own"
    Store(own)
    target = own / "runs" / ("0" * len(result.key))
    shutil.copytree(store.path(result.key), target)
    text = (target / "result.json").read_text()
    (target / "result.json").write_text(text.replace(result.key, target.name))
    assert ledger.pack(own, tmp_path / "archives") == {"ln-table1-mnist-ln-changed": 1}
    assert ledger.unpack(tmp_path / "back", tmp_path / "archives") == 1
    assert Store(tmp_path / "back").result(target.name).metrics == result.metrics


def test_failed_runs_are_packed_too(ledger, tmp_path):
    store = Store(tmp_path / "own")
    plain = ledger.papers.get("ln-table1-mnist").cells[0].settings
    for run in (plain, plain.replace(recipe={**plain.recipe, "lr": 0.5})):
        store.fail(run, "diverged", "at step 7")
    assert ledger.pack(store.folder, tmp_path / "archives") == {
        "ln-table1-mnist-ce": 1,
        "ln-table1-mnist-ce-changed": 1,
    }


def test_jumps_of_the_loss_are_listed_run_by_run(ledger):
    lines = list(ledger.jumps("ln-table1-mnist-ln-changed"))
    assert lines == sorted(lines)
    (line,) = (line for line in lines if "precision=fp32" in line and "seed 1:" in line)
    about, tests = line.split("; last tests ")
    assert about.startswith("asymmetric 0.1, ")
    assert ": 99.1 %, 8 jumps [22, 31, " in about
    assert len(tests.split()) == 20
    assert tests.endswith(" 99.1 99.1")


def test_what_was_changed_is_told_from_what_is_another_cell(ledger, unpacked):
    results = [r for r in Store(unpacked[0]).results() if r.settings["data"]["name"] == "mnist"]
    ln = [r for r in results if r.settings["method"]["name"] == "ln"]
    low = [r for r in ln if (r.settings["noise"] or {}).get("rate") == 0.1]
    usual = {"clip_norm": None, "schedule": "constant", "precision": "tf32"}
    plain = next(
        r
        for r in low
        if r.settings["params"]["min_scale"] == 0.1 and usual.items() <= r.settings["recipe"].items()
    )
    found = {ledger._change(plain, r) for r in low}
    assert {
        "recipe.clip_norm=1",
        "params.min_scale=0.5",
        "recipe.schedule=cosine",
        "recipe.precision=fp32",
    } < found
    assert {ledger._change(plain, r) for r in ln if r not in low} == {None}
    assert {ledger._change(plain, r) for r in results if r not in ln} == {None}


def test_more_seeds_of_a_cell_have_a_line_of_their_own(ledger, unpacked):
    study = ledger.papers.get("ln-table1-mnist")
    lines = ledger.changes(study, Store(unpacked[0]), ["het"])[2:-1]
    assert [line.split(" | ")[0] for line in lines] == ["| nothing", "| nothing, more seeds"]
    assert {line.split(" | ")[3] for line in lines} == {"5"}
    assert lines[0].split(" | ")[4:] != lines[1].split(" | ")[4:]


@pytest.mark.parametrize("scores", [[3, 1, 2, 5, 4], [1, 1, 2, 2, 0], [7, 7, 7, 7, 7]])
@pytest.mark.parametrize("tried", [1, 3])
def test_what_the_best_of_some_gains_is_the_mean_over_all_draws(ledger, scores, tried):
    values = [0.9, 0.2, 0.4, 0.8, 0.3]
    draws = itertools.product(range(5), repeat=tried)
    chosen = []
    for draw in draws:
        best = [values[i] for i in draw if scores[i] == max(scores[j] for j in draw)]
        chosen.append(sum(best) / len(best))
    assert ledger.best_of(values, scores, tried) == pytest.approx(sum(chosen) / len(chosen), abs=1e-12)


def test_methods_whose_settings_were_not_searched_gain_nothing_by_luck(ledger, unpacked):
    lines = list(ledger.luck(ledger.papers.get("ln-table1-mnist"), Store(unpacked[0])))
    assert len(lines) == 6 * 9
    assert not [line for line in lines if line.startswith(("CE,", "Het,", "Forward,"))]
    (line,) = (line for line in lines if line.startswith("Het-τ-Σ_full, Asymmetric 20%"))
    assert ": best of 15 +" in line


def test_all_cells_of_a_method_together(ledger, unpacked):
    store = Store(unpacked[0])
    lines = list(ledger.sums(ledger.papers.get("ln-table1-mnist"), store, draws=4000))
    assert len(lines) == 9 + 6  # six methods had settings to search
    (line,) = (line for line in lines if line.startswith("CE:"))
    results = [r for r in store.results() if r.settings["data"]["name"] == "mnist"]
    plain = [r for r in results if r.settings["method"]["name"] == "ce" and r.settings["validation"] != 15000]
    paper = {  # table 1 of the Logistic-Normal paper: mean and deviation
        (None, None): (99.27, 0.07),
        ("symmetric", 0.2): (88.41, 0.34),
        ("symmetric", 0.4): (70.67, 1.30),
        ("symmetric", 0.6): (51.04, 1.19),
        ("symmetric", 0.8): (29.53, 1.08),
        ("asymmetric", 0.1): (96.64, 0.32),
        ("asymmetric", 0.2): (91.09, 0.79),
        ("asymmetric", 0.3): (86.31, 1.25),
        ("asymmetric", 0.4): (80.31, 1.81),
    }
    total = 0.0
    for (name, rate), (mean, deviation) in paper.items():
        noise = {"name": name, "rate": rate}
        own = [r for r in plain if {k: (r.settings["noise"] or {}).get(k) for k in noise} == noise]
        ours = [100 * r.metrics["test_accuracy"] for r in own]
        assert len(ours) == 5
        error = (statistics.variance(ours) / 5 + deviation**2 / 5) ** 0.5
        total += (statistics.mean(ours) - mean) / error
    assert f"sum of t over 9 cell(s) {total:+.1f}, p = " in line
    p = float(line.split("p = ")[1].removesuffix(" %"))
    assert 55 < p < 65


def test_five_steps_are_too_few_and_many_are_the_cost(ledger, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import other_gradients

    torch.manual_seed(0)
    outputs = (100 * torch.randn(50, 10, dtype=torch.float64)).requires_grad_()
    labels = torch.arange(50) % 10
    objective = ng.BiTempered(10, t1=0.7, t2=4.0)
    (gradient,) = torch.autograd.grad(objective.label_costs(outputs, labels).sum(), outputs)
    q, found = other_gradients.five_steps(outputs.detach(), labels, 0.7, 4.0, steps=200)
    torch.testing.assert_close(q, objective.probs(outputs).detach())
    torch.testing.assert_close(found, gradient)
    q, found = other_gradients.five_steps(outputs.detach(), labels, 0.7, 4.0)
    assert 1.05 < q.sum(1).max() < 1.08
    assert 0.1 < (found - gradient).norm() / gradient.norm() < 0.3
    five = other_gradients.FiveSteps(10, t1=0.7, t2=4.0)
    (taken,) = torch.autograd.grad(five.label_costs(outputs, labels).sum(), outputs)
    torch.testing.assert_close(taken, found)


def test_the_table_of_dead_units_is_that_of_the_stored_numbers(ledger):
    import json

    import ln_many_classes

    found = json.loads(ln_many_classes.FOUND.read_text())
    assert list(found) == list(ln_many_classes.WAYS)
    assert "\n".join(ln_many_classes.table(found)) in (FOLDER / "README.md").read_text()


def test_what_a_network_without_units_costs():
    objective = ng.LogisticNormal(100, temperature=0.5, min_scale=0.5)
    mean = torch.zeros(1, objective.n_outputs)
    mean[:, :100] = objective.target / 100
    assert objective.costs(mean).mean().item() == pytest.approx(64.6, abs=0.05)
