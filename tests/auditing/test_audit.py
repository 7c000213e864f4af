from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

import noisegate as ng
from noisegate.auditing import stored
from noisegate.auditing.cleaning import Cleaning, clean_and_compare, cleaned_outside
from noisegate.auditing.crossfit import Fitting, Fold, deal
from noisegate.auditing.places import Where
from noisegate.errors import InputError, UnknownNameError
from noisegate.quality import judge


def blobs(n=400, seed=0, rate=0.2):
    rng = np.random.default_rng(seed)
    true = rng.integers(3, size=n)
    x = (3 * np.eye(3)[true] + rng.normal(size=(n, 3))).astype(np.float32)
    given = np.where(rng.random(n) < rate, (true + 1) % 3, true)
    return x, given, true


@pytest.fixture(scope="module")
def found():
    x, given, true = blobs()
    data = ng.data.load((x, true)).with_labels(given)
    return ng.audit(data, detector="neighbours"), given, true


def test_rows_come_worst_first_with_the_labels_of_the_data():
    x, given, _ = blobs()
    values = np.array(["ape", "bee", "cow"])
    report = ng.audit(x, values[given], detector="neighbours")
    issues = report.issues
    assert (np.diff(issues.p_wrong) <= 0).all()
    np.testing.assert_allclose(issues.quality, 1 - issues.p_wrong, atol=1e-6)
    np.testing.assert_array_equal(issues.given_label, values[given[issues.row]])
    assert set(issues.suggested_label) <= set(values)
    assert (issues.given_label != issues.suggested_label)[issues.is_label_issue].all()
    np.testing.assert_allclose(report.quality[issues.row], issues.quality)
    assert set(report.confused.true) <= set(values)


def test_errors_are_found_and_counted_about_right(found):
    report, given, true = found
    wrong = given != true
    truth = report.info["truth"]
    assert truth["errors"] == wrong.sum()
    assert truth["recall_look"] > 0.8
    assert truth["precision_look"] > 0.8
    assert truth["suggestions_right"] > 0.9
    assert report.noise_rate.low <= report.noise_rate <= report.noise_rate.high
    assert report.noise_rate.low - 0.02 < wrong.mean() < report.noise_rate.high + 0.02
    assert report.transition.shape == (3, 3)
    low, high = report.transition_interval
    assert (low <= report.transition + 1e-12).all()
    assert (report.transition <= high + 1e-12).all()
    top = report.confused.iloc[:3]
    assert ((top.true + 1) % 3 == top.given).all()


def test_scripts_for_cleanlab_find_their_columns(found):
    cleanlab = pytest.importorskip("cleanlab.classification")
    report, given, _ = found
    ours = report.get_label_issues()
    theirs = cleanlab.CleanLearning(LogisticRegression()).find_label_issues(blobs()[0], given)
    assert ours.columns.tolist() == theirs.columns.tolist()
    np.testing.assert_array_equal(ours.given_label, theirs.given_label)
    assert (ours.is_label_issue == theirs.is_label_issue).mean() > 0.8
    assert (ours.predicted_label != ours.given_label).equals(ours.is_label_issue)
    np.testing.assert_allclose(ours.label_quality, report.quality, atol=1e-6)


def test_the_curve_rises_to_the_number_of_errors(found):
    report, given, _ = found
    curve = report.curve
    assert curve.looked.iloc[0] == 0
    assert curve.found.iloc[0] == 0
    assert curve.looked.iloc[-1] == len(given)
    assert curve.found.iloc[-1] == pytest.approx(report.errors)
    assert (np.diff(curve.found) >= -1e-9).all()
    assert ((curve.low <= curve.found) & (curve.found <= curve.high)).all()
    # The worst rows come first: the curve bends down.
    assert (np.diff(np.diff(curve.found) / np.diff(curve.looked)) <= 1e-9).all()


def test_neighbours_say_why(found):
    report, given, _ = found
    row = int(report.issues.row[0])
    why = report.why(row)
    assert len(why) == 5
    assert not why.agrees.all()
    np.testing.assert_array_equal(why.label, given[why.row])
    assert report.why(int(report.issues.row.iloc[-1])).empty


def test_a_report_is_saved_and_read_again(found, tmp_path):
    report, _, _ = found
    report.save(tmp_path / "audit")
    again = ng.AuditReport.load(tmp_path / "audit")
    pd.testing.assert_frame_equal(again.issues, report.issues, check_dtype=False)
    assert again.noise_rate == report.noise_rate
    np.testing.assert_allclose(again.transition, report.transition)
    assert again.summary() == report.summary()
    pd.testing.assert_frame_equal(again.why(int(report.issues.row[0])), report.why(int(report.issues.row[0])))
    assert json.loads(json.dumps(again.to_dict()))["audit_id"] == report.info["audit_id"]
    with np.load(tmp_path / "audit" / "inputs.npz") as kept:
        assert set(kept["rows"]) == set(range(400))


def test_a_frame_with_texts_is_audited_and_kept(tmp_path, monkeypatch):
    x, given, _ = blobs()
    frame = pd.DataFrame({"a": x[:, 0], "kind": np.where(x[:, 1] > 1.5, "b", "other"), "c": x[:, 2]})
    monkeypatch.setattr("noisegate.auditing.audit_report.MOST_INPUTS", 50)
    report = ng.audit(frame, given, detector="neighbours")
    report.save(tmp_path / "audit")
    kept = pd.read_parquet(tmp_path / "audit" / "inputs.parquet")
    assert set(kept.row) == set(report.issues.row[:50])
    np.testing.assert_array_equal(kept.kind, frame.kind[kept.row])


def test_probabilities_of_ones_own_are_judged_as_find_label_issues_does():
    x, given, _ = blobs()
    fit = ng.audit(x, given, detector="neighbours")
    labels = np.array(["ape", "bee", "cow"])[given]
    report = ng.audit(x, labels, probs=fit.probs)
    flags = np.zeros(len(x), bool)
    flags[report.issues.row[report.issues.is_label_issue]] = True
    np.testing.assert_array_equal(flags, ng.find_label_issues(fit.probs, given))
    np.testing.assert_array_equal(report.quality, fit.quality)
    assert report.info["settings"] == {"probabilities": "given", "seed": 0}
    assert len(report.why(report.issues.row[0])) == 5  # neighbours among the inputs


def test_clean_labels_do_not_change_what_is_found():
    x, given, true = blobs(200)
    data = ng.data.load((x, true)).with_labels(given)
    with_truth, without = (ng.audit(d, detector="neighbours") for d in (data, ng.data.load((x, given))))
    np.testing.assert_array_equal(with_truth.quality, without.quality)
    assert without.info["truth"] is None


def vote(fold):
    """Instead of training: the vote of the 5 nearest training rows, by the weights of the rows."""
    split = fold.train.train
    near = NearestNeighbors(n_neighbors=5).fit(split.x).kneighbors(fold.held, return_distance=False)
    weight = np.ones(len(split)) if fold.weight is None else fold.weight
    votes = [np.bincount(split.y[r], weights=weight[r], minlength=fold.train.n_classes) for r in near]
    return {"probs": (np.array(votes) + 0.1) / (np.sum(votes, axis=1, keepdims=True) + 0.1 * len(votes[0]))}


@pytest.fixture
def votes(monkeypatch):
    trained = []
    monkeypatch.setattr(Fold, "run", lambda self: trained.append(self) or vote(self))
    return trained


@pytest.mark.parametrize("how", ["drop", "relabel", "weight"])
@pytest.mark.parametrize("folds", [2, 5])
def test_cleaning_is_compared_on_given_labels_of_all_rows(votes, how, folds):
    x, given, _ = blobs()
    fitting = Fitting("ce")
    folds_ = max(folds, 3)
    fold = deal(given, folds_, 0)
    result = clean_and_compare(
        ng.data.load((x, given)),
        fitting,
        folds,
        Where(),
        judge(np.full((400, 3), 1 / 3), given),
        Cleaning(how),
    )
    n_pairs = folds_ * (folds_ - 1) // 2
    assert len(votes) == 2 * folds_ + n_pairs
    before, after = votes[:folds_], votes[-folds_:]
    right = [np.empty(400, bool), np.empty(400, bool)]
    for k in range(folds_):
        for mine, fits in zip(right, (before, after), strict=True):
            assert len(fits[k].held) == (fold == k).sum()
            mine[fold == k] = vote(fits[k])["probs"].argmax(axis=1) == given[fold == k]
        np.testing.assert_array_equal(before[k].train.train.y, given[fold != k])
    assert result["accuracy_before"] == pytest.approx(right[0].mean())
    assert result["accuracy_after"] == pytest.approx(right[1].mean())
    assert result["low"] < result["difference"] == pytest.approx(right[1].mean() - right[0].mean())


@pytest.mark.parametrize("how", ["drop", "relabel", "weight"])
def test_wrong_labels_do_not_leak_into_the_folds_that_judge_cleaning(votes, how):
    """Labels of similar rows are drawn at random: whatever is cleaned, they cannot be predicted."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(60, 4)), 12, axis=0) + 0.01 * rng.normal(size=(720, 4))
    given = rng.integers(2, size=720)
    result = clean_and_compare(
        ng.data.load((x, given)),
        Fitting("ce"),
        4,
        Where(),
        judge(np.full((720, 2), 0.5), given),
        Cleaning(how),
    )
    # Labels cleaned by networks that had seen the held-out rows: 0.59 to 0.67.
    assert 0.44 < result["accuracy_after"] < 0.54


@pytest.mark.parametrize("how", ["drop", "relabel", "weight"])
def test_no_network_sees_the_fold_that_it_cleans_for(votes, how):
    x, given, _ = blobs()
    data, fold = ng.data.load((x, given)), deal(given, 4, 0)
    first = cleaned_outside(data, Fitting("ce"), fold, Where(), Cleaning(how))
    other = np.where(fold == 2, (given + 1) % 3, given)
    second = cleaned_outside(ng.data.load((x, other)), Fitting("ce"), fold, Where(), Cleaning(how))
    rest = fold != 2
    for name in ("y", "keep", "weight"):
        a, b = getattr(first[2], name), getattr(second[2], name)
        if a is not None:
            np.testing.assert_array_equal(a[rest], b[rest])
    changed = first[2]
    assert (changed.y != given).any() or changed.keep is not None or changed.weight is not None


@pytest.mark.parametrize("how", ["drop", "relabel", "weight"])
def test_ways_to_clean(how):
    _, given, true = blobs()
    found = judge(0.05 + 0.85 * np.eye(3)[true], given)
    labels = Cleaning(how).labels(given, found)
    if how == "drop":
        np.testing.assert_array_equal(labels.keep, given == true)
    elif how == "relabel":
        np.testing.assert_array_equal(labels.y, true)
    else:
        assert labels.weight[given == true].min() > labels.weight[given != true].max()


def test_dropping_leaves_half_of_every_class():
    true = np.repeat([0, 1], 50)
    given = np.where(
        (true == 0) & (np.arange(100) < 40), 1, true
    )  # most rows labelled 0 are right, of class 1 ...
    given[90:] = 0
    found = judge(0.05 + 0.9 * np.eye(2)[1 - given], given)  # a classifier that contradicts every label
    keep = Cleaning("drop").labels(given, found).keep
    assert all(keep[given == label].sum() >= (given == label).sum() // 2 for label in (0, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": np.zeros((4, 2))}, "needs the given labels"),
        ({"X": np.zeros((4, 2)), "y": [0, 1, 0, 1], "detector": "neighbour"}, "did you mean 'neighbours'"),
        (
            {"X": np.zeros((4, 2)), "y": [0, 1, 0, 1], "detector": "neighbours", "ids": ["a"]},
            "4 rows but 1 ids",
        ),
        ({"X": pd.DataFrame({"a": [1.0, 2.0]}), "y": [0, 1, 1]}, "2 rows but 3 labels"),
        (
            {"X": np.zeros((2, 2)), "y": ["b", "a"], "probs": [[0.1, 0.2, 0.7]] * 2},
            "probs of 2 rows for the 2 classes a, b",
        ),
        ({"X": np.zeros((2, 2)), "y": [0, 1], "probs": [[-3.0, 4.0]] * 2}, "were these logits"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        ng.audit(arguments.pop("X"), **arguments)


def test_unknown_way_to_clean():
    with pytest.raises(UnknownNameError, match="did you mean 'drop'"):
        Cleaning("drops")


def test_a_classifier_that_learnt_nothing_is_named():
    rng = np.random.default_rng(0)
    report = ng.audit(rng.normal(size=(300, 4)), rng.integers(3, size=300), detector="neighbours")
    assert "learnt almost nothing" in report.summary()


def test_estimates_are_numbers_with_an_interval(found):
    report, _, _ = found
    assert set(report.precision) == {"look", "sure"}
    assert "to" in repr(report)
    assert stored.COLUMNS.keys() == set(report.issues.columns)
