"""The scikit-learn estimator: scikit-learn's own checks, and the ways people use one."""

import datetime
import json
import uuid
import warnings

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import noisegate as ng
from noisegate.errors import DivergedError, InputError, UnknownNameError

QUICK = {"epochs": 15}


def expected_failures(estimator):
    reason = "a mini-batch of repeated rows is not a weighted one"
    return dict.fromkeys(
        (
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        ),
        reason,
    )


# The default's networks are trained for a moment: everything else in it is as it is.
@parametrize_with_checks(
    [
        ng.NoisyLabelClassifier(recipe={"epochs": 1}),
        ng.NoisyLabelClassifier(method="ce", recipe={"epochs": 30}),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([ng.NoisyLabelClassifier()], expected_failed_checks=expected_failures)
def test_scikit_learn_checks_of_the_default(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    return ng.data.load("digits").corrupt(ng.noise.Symmetric(0.3), seed=0)


def classifier(**parameters):
    # On one kind of device, so that results can be compared exactly.
    settings = {"method": "ln", "recipe": QUICK, "random_state": 0, "device": "cpu"}
    return ng.NoisyLabelClassifier(**settings | parameters)


def test_it_works_in_a_pipeline(digits):
    pipeline = make_pipeline(MinMaxScaler(), classifier())
    assert pipeline.fit(digits.train.x, digits.train.y).score(digits.test.x, digits.test.y) > 0.85


def test_grid_search_reaches_the_method_and_the_recipe(digits):
    grid = {"method__temperature": [0.5, 1.0], "recipe__epochs": [1, 12]}
    search = GridSearchCV(classifier(recipe=None), grid, cv=2).fit(digits.train.x, digits.train.y)
    assert search.best_params_["recipe__epochs"] == 12
    fitted = search.best_estimator_.fitted_
    assert fitted.objective.temperature == search.best_params_["method__temperature"]
    assert len(fitted.history[0]) == 12
    assert search.score(digits.test.x, digits.test.y) > 0.85


def test_cross_validated_probabilities_find_wrong_labels(digits):
    x, y, wrong = digits.train.x, digits.train.y, digits.train.wrong
    probs = cross_val_predict(classifier(), x, y, cv=3, method="predict_proba")
    given = probs[np.arange(len(y)), y]
    flagged = np.argsort(given)[: int(wrong.sum())]
    assert wrong[flagged].mean() > 0.8 > wrong.mean()


def test_pandas_in_and_string_labels_out(digits):
    names = np.array([f"digit-{k}" for k in range(10)])
    frame = pd.DataFrame(digits.train.x, columns=[f"pixel{k}" for k in range(64)])
    clf = classifier().fit(frame, pd.Series(names[digits.train.y]))
    assert list(clf.classes_) == list(names)
    assert list(clf.feature_names_in_) == list(frame.columns)
    test = pd.DataFrame(digits.test.x, columns=frame.columns)
    assert clf.score(test, names[digits.test.y]) > 0.85
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(test.rename(columns={"pixel0": "other"}))


def test_sample_weights_are_used(digits):
    x, y = digits.train.x, digits.train.y
    trusted = np.where(digits.train.wrong, 0.0, 1.0)
    weighted = classifier(method="ce", recipe={"epochs": 40}).fit(x, y, sample_weight=trusted)
    plain = classifier(method="ce", recipe={"epochs": 40}).fit(x, y)
    assert weighted.score(digits.test.x, digits.test.y) > plain.score(digits.test.x, digits.test.y) + 0.05


def test_rows_of_weight_zero_are_as_if_they_were_not_there(digits):
    x, y = digits.train.x[:100], digits.train.y[:100]
    weight = np.r_[np.ones(80), np.zeros(20)]
    first = classifier().fit(x, y, sample_weight=weight).predict_proba(x)
    second = classifier().fit(x[:80], y[:80], sample_weight=weight[:80]).predict_proba(x)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8)])
def test_image_arrays(shape):
    data = ng.data.load("digits", as_images=True).corrupt(ng.noise.Symmetric(0.2), seed=0)
    clf = classifier(recipe={"epochs": 15}).fit(data.train.x.reshape(-1, *shape), data.train.y)
    assert clf.score(data.test.x.reshape(-1, *shape), data.test.y) > 0.85
    assert clf.fitted_.network.spec["network"] == "lenet5"
    with pytest.raises(ValueError):
        clf.predict(data.test.x.reshape(-1, 64))


def own_network(shape, n_outputs):
    return nn.Sequential(nn.Linear(shape[0], 200), nn.ReLU(), nn.Linear(200, n_outputs))


def test_a_users_own_module(digits, tmp_path):
    clf = classifier(network=own_network, recipe={"epochs": 40}).fit(digits.train.x, digits.train.y)
    assert clf.score(digits.test.x, digits.test.y) > 0.8
    clf.save(tmp_path)
    back = ng.NoisyLabelClassifier.load(tmp_path, network=own_network, device="cpu")
    assert np.array_equal(back.predict(digits.test.x), clf.predict(digits.test.x))
    with pytest.raises(InputError, match="network="):
        ng.NoisyLabelClassifier.load(tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        np.array(["no", "yes"]),
        np.array([3, 7]),
        np.array([False, True]),
        np.array([0.0, 1.0]),
        np.array(["b", "a"], object),
    ],
    ids=["str", "int", "bool", "float", "object"],
)
def test_a_saved_classifier_comes_back_whole(digits, tmp_path, values):
    x, y = digits.train.x[:200], values[digits.train.y[:200] % 2]
    method = ng.methods.Plain(ng.LogisticNormal, temperature=0.5)
    clf = classifier(method=method, recipe=ng.Recipe(epochs=5)).fit(pd.DataFrame(x).rename(columns=str), y)
    clf.save(tmp_path)
    back = ng.NoisyLabelClassifier.load(tmp_path, device="cpu")
    frame = pd.DataFrame(digits.test.x).rename(columns=str)
    assert np.array_equal(back.predict_proba(frame), clf.predict_proba(frame))
    assert back.classes_.dtype == clf.classes_.dtype
    assert np.array_equal(back.predict(frame), clf.predict(frame))
    assert back.get_params()["method__temperature"] == 0.5
    assert back.recipe == clf.recipe
    # It can be trained again, with the same result.
    again = clone(back).fit(frame, values[digits.test.y % 2])
    assert again.n_features_in_ == 64
    json.loads((tmp_path / "model.json").read_text())


def test_models_that_no_estimator_has_saved_are_estimators_too(digits, tmp_path):
    ng.train(digits, "ln", "mlp-8", {"epochs": 2}, 7, "cpu", progress=False).save(tmp_path / "m", method="ln")
    clf = ng.NoisyLabelClassifier.load(tmp_path / "m")
    assert (clf.method, clf.network, clf.recipe.epochs, clf.random_state) == ("ln", "mlp-8", 2, 7)
    assert clf.n_features_in_ == 64
    x = digits.test.x
    np.testing.assert_array_equal(clf.predict_proba(x), ng.Fitted.load(tmp_path / "m").predict_proba(x))
    assert clone(clf).fit(x[:50], digits.test.y[:50]).classes_.tolist() == list(range(10))
    with pytest.raises(NotFittedError):
        classifier().save(tmp_path)


def test_models_of_masks_and_of_nobody_are_no_estimators(tmp_path):
    scenes = ng.data.load("scenes", n=4)
    ng.train(scenes, "ce", recipe={"epochs": 1}, device="cpu", progress=False).save(tmp_path / "maps")
    with pytest.raises(InputError, match=r"holds a model of segmentation masks; use ng\.Fitted\.load"):
        ng.NoisyLabelClassifier.load(tmp_path / "maps")
    fitted = ng.train(ng.data.load("moons", n=20), "ce", recipe={"epochs": 1}, device="cpu", progress=False)
    fitted.record = {}
    fitted.save(tmp_path / "m")
    with pytest.raises(InputError, match=r"does not say how it was trained; use ng\.Fitted\.load"):
        ng.NoisyLabelClassifier.load(tmp_path / "m")


def test_validation_rows_stop_training_early(digits):
    recipe = {"epochs": 100, "patience": 2, "keep": "best"}
    x, y = digits.train.x, digits.train.y
    clf = classifier(recipe=recipe).fit(x[300:], y[300:], X_val=x[:300], y_val=y[:300])
    assert len(clf.fitted_.history[0]) < 100
    # Without them a tenth of the rows is held out.
    assert "validation_accuracy" in classifier(recipe=recipe).fit(x, y).fitted_.history[0][0]


def test_bad_validation_rows_are_refused(digits):
    x, y = digits.train.x[:50], digits.train.y[:50]
    with pytest.raises(InputError, match="without y_val"):
        classifier().fit(x, y, X_val=x)
    for label in (17, -1):
        with pytest.raises(InputError, match=f"label .*{label}.*not among the training labels"):
            classifier().fit(x, y, X_val=x, y_val=np.where(np.arange(50) == 3, label, y))
    with pytest.raises(InputError, match="'maybe'.*not among"):
        classifier().fit(x, np.where(y < 5, "no", "yes"), X_val=x, y_val=np.full(50, "maybe"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(digits, bad):
    x = digits.train.x[:50].copy()
    x[3, 5] = bad
    with pytest.raises(ValueError, match="NaN|infinity"):
        classifier().fit(x, digits.train.y[:50])
    clf = classifier().fit(digits.train.x[:50], digits.train.y[:50])
    with pytest.raises(ValueError, match="NaN|infinity"):
        clf.predict(x)


def test_one_class_is_refused(digits):
    with pytest.raises(InputError, match="only one class"):
        classifier().fit(digits.train.x[:20], np.zeros(20))
    with pytest.raises(InputError, match="only one class"):
        weight = (digits.train.y[:50] == 3).astype(float)
        classifier().fit(digits.train.x[:50], digits.train.y[:50], sample_weight=weight)


def test_unknown_parameters_are_refused_by_name(digits):
    with pytest.raises(
        UnknownNameError, match="unknown parameter of LogisticNormal 'temprature'; did you mean 'temperature'"
    ):
        classifier().set_params(method__temprature=1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'epochs'"):
        classifier(recipe={"epoch": 3}).fit(digits.train.x[:50], digits.train.y[:50])
    with pytest.raises(InputError, match=r"only method__\.\.\. and recipe__\.\.\. are nested"):
        classifier().set_params(network__depth=3)
    with pytest.raises(UnknownNameError, match="unknown method 'lnn'; did you mean 'ln'"):
        classifier(method="lnn").fit(digits.train.x[:50], digits.train.y[:50])


def test_the_same_seed_gives_the_same_model(digits):
    x, y = digits.train.x[:200], digits.train.y[:200]
    one, two, other = (classifier(random_state=s).fit(x, y).predict_proba(x) for s in (5, 5, 6))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_divergence_is_an_error_not_a_model(digits):
    with pytest.raises(DivergedError):
        classifier(recipe={"optimizer": "sgd", "lr": 1e18}).fit(digits.train.x, digits.train.y)


def test_constructing_and_setting_share_no_state():
    first = classifier()
    second = clone(first).set_params(method__temperature=0.1, recipe__epochs=3)
    assert first.method == "ln"
    assert first.recipe == QUICK
    assert second.get_params()["method__temperature"] == 0.1
    third = clone(second).set_params(method__temperature=0.7)
    assert second.get_params()["method__temperature"] == 0.1
    assert third.get_params()["method__temperature"] == 0.7


def test_numpys_numbers_are_numbers(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    recipe = {"epochs": np.int64(2), "lr": np.float32(0.01), "batch_size": np.int16(16)}
    clf = ng.NoisyLabelClassifier("het-full", recipe=recipe, random_state=np.int64(5), device="cpu")
    clf.set_params(method__rank=np.int64(1), method__n_samples=16, method__temperature=np.float32(0.5)).fit(
        x, y
    )
    clf.save(tmp_path / "m")
    again = ng.NoisyLabelClassifier.load(tmp_path / "m")
    assert again.random_state == 5
    np.testing.assert_array_equal(again.predict_proba(x), clf.predict_proba(x))


def test_validation_labels_are_checked_like_labels():
    x, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    clf = ng.NoisyLabelClassifier("ce", recipe={"epochs": 2, "keep": "best"}, device="cpu")
    with pytest.raises(InputError, match="y_val was given without X_val"):
        clf.fit(x, y, y_val=y)
    with pytest.warns(DataConversionWarning):
        clf.fit(x, y, X_val=x, y_val=y[:, None])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.fit(x, y, X_val=x, y_val=y[:5])


@pytest.mark.parametrize("shape", [(5,), (6, 6), (1, 6, 6)])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "uint8", "int64"])
def test_arrays_that_need_no_check_are_read_as_checked_ones(monkeypatch, shape, kind):
    x = np.random.default_rng(0).integers(0, 2, (12, *shape)).astype(kind)
    clf = classifier(method="ce", recipe={"epochs": 1}).fit(x, np.arange(12) % 2)
    assert clf._needs_no_check(x)
    wrong = x.astype(float)
    wrong[3].flat[1] = np.nan
    for bad in (wrong, x[:0], x[:, :0], x.ravel(), x.tolist(), x.astype(object), x > 0):
        assert not clf._needs_no_check(bad)
    quick = clf._read(x, reset=False)
    monkeypatch.setattr(type(clf), "_needs_no_check", lambda *_: False)
    checked = clf._read(x, reset=False)
    assert quick.dtype == checked.dtype
    np.testing.assert_array_equal(quick, checked)


@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
def test_features_far_from_zero_keep_their_digits(kind):
    # Seconds of a clock: float32 has steps of 128 there.
    rng = np.random.default_rng(0)
    x = 1_700_000_000 + rng.integers(-50, 51, (300, 2))
    y = (x[:, 0] > 1_700_000_000).astype(int)
    clf = classifier(method="ce", network="mlp-16", recipe={"epochs": 30}).fit(x.astype(kind), y)
    assert clf.score(x.astype(kind), y) > 0.95
    inputs = torch.tensor(x[:2] if kind == "float64" else x[:2].astype(kind))
    torch.testing.assert_close(
        clf.fitted_.network.prepare(inputs), clf.fitted_.network.prepare(inputs.double()), rtol=0, atol=0
    )


def mixed(n=60):
    """Every kind of column, and the labels they tell."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    return pd.DataFrame(
        {
            "number": rng.normal(y * 2.0, 1.0),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(y, 1.0)),
            "flag": rng.random(n) < 0.5,
            "day": pd.Timestamp("2026-11-18") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "colour": pd.Categorical(np.where(y == 1, "red", rng.choice(["blue", "green"], n))),
            "review": [
                f"{'good fine lovely' if k else 'bad poor dull'} film number {i}" for i, k in enumerate(y)
            ],
        }
    ), np.where(y == 1, "yes", "no")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "capsule"])
def test_frames_of_every_kind_and_column(kind, tmp_path):
    frame, y = mixed()
    given = {
        "pandas": lambda: frame,
        "polars": lambda: polars.from_pandas(frame),
        "arrow": lambda: pa.Table.from_pandas(frame),
        "capsule": lambda: Capsule(pa.Table.from_pandas(frame)),
    }[kind]()
    clf = classifier(method="ce", network="mlp-16", recipe={"epochs": 20}).fit(given, y)
    kinds = [column.kind for column in clf.reader_.columns]
    assert kinds == ["number", "number", "number", "time", "category", "text"]
    assert list(clf.feature_names_in_) == list(frame.columns)
    assert clf.score(given, y) > 0.9
    probs = (
        classifier(method="ce", network="mlp-16", recipe={"epochs": 20}).fit(frame, y).predict_proba(frame)
    )
    np.testing.assert_array_equal(clf.predict_proba(given), probs)
    clf.save(tmp_path / "m")
    np.testing.assert_array_equal(ng.NoisyLabelClassifier.load(tmp_path / "m").predict_proba(given), probs)
    np.testing.assert_array_equal(ng.Fitted.load(tmp_path / "m").predict_proba(frame), probs)


class Capsule:
    """Any table that hands over Arrow data."""

    def __init__(self, table):
        self.table, self.columns = table, table.column_names

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_columns_that_name_the_rows_are_told():
    frame, y = mixed()
    with pytest.warns(UserWarning, match=r"columns that are not used: 'customer_id' \(names the rows"):
        clf = classifier(method="ce", network="linear", recipe={"epochs": 1}).fit(
            frame[["number"]].assign(customer_id=np.arange(60) * 3 + 7, empty=None), y
        )
    assert [column.name for column in clf.reader_.columns] == ["number"]
    assert set(clf.reader_.dropped) == {"customer_id", "empty"}


@pytest.mark.parametrize("dense_bytes", [0, 2**28])
def test_sparse_matrices(monkeypatch, tmp_path, dense_bytes):
    monkeypatch.setattr("noisegate.data.sparse.DENSE_BYTES", dense_bytes)
    frame, y = mixed()
    x = TfidfVectorizer().fit_transform(frame["review"])
    clf = classifier(method="ce", network="mlp-16", recipe={"epochs": 10}).fit(x, y)
    assert clf.score(x, y) > 0.9
    dense = classifier(method="ce", network="mlp-16", recipe={"epochs": 10}).fit(x.toarray().astype("f"), y)
    np.testing.assert_allclose(clf.predict_proba(x), dense.predict_proba(x.toarray().astype("f")), atol=1e-6)
    weights = np.r_[np.zeros(10), np.ones(50)]
    classifier(method="ce", network="linear", recipe={"epochs": 1}).fit(x, y, sample_weight=weights)
    bad = x.copy()
    bad.data[-1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        clf.predict(bad)


def test_pipelines_and_column_transformers():
    frame, y = mixed()
    frame = frame.drop(columns=["review", "day"])
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    step = make_column_transformer((numbers, ["number", "gaps"]), (OneHotEncoder(), ["colour"]))
    clf = make_pipeline(step, classifier(method="ce", network="mlp-16", recipe={"epochs": 20}))
    assert clf.fit(frame, y).score(frame, y) > 0.9
    whole = cross_val_predict(classifier(method="ce", network="mlp-16", recipe={"epochs": 5}), frame, y, cv=2)
    assert set(whole) == {"yes", "no"}
    step.set_output(transform="pandas").set_params(onehotencoder__sparse_output=False)
    assert clf.fit(frame, y).score(frame, y) > 0.9


def test_frames_that_do_not_fit():
    frame, y = mixed()
    clf = classifier(method="ce", network="linear", recipe={"epochs": 1}).fit(pa.Table.from_pandas(frame), y)
    with pytest.raises(InputError, match="the table lacks 1 of the 6 columns it was trained on: 'number'"):
        clf.predict(pa.Table.from_pandas(frame.drop(columns="number")))
    with pytest.raises(
        InputError, match="column 'number' was a column of numbers in training, but row 2 has 'x'"
    ):
        clf.predict(pa.Table.from_pandas(frame.assign(number=["1", "2", "x"] * 20)))
    with pytest.raises(InputError, match="column 'number' holds a list a row"):
        classifier().fit(pa.table({"number": [[1], [2]]}), [0, 1])


YES = np.arange(20) % 2 == 0
LABELS = {
    "nullable whole numbers": (pd.Series(np.where(YES, 3, 1), dtype="Int64"), [1, 3], "i"),
    "nullable booleans": (pd.Series(YES, dtype="boolean"), [False, True], "b"),
    "objects": (np.where(YES, 3, 1).astype(object), [1, 3], "i"),
    "objects that are booleans": (YES.astype(object), [False, True], "b"),
    "categories": (pd.Series(pd.Categorical(np.where(YES, "b", "a"), ["z", "b", "a"])), ["a", "b"], "O"),
    "polars": (polars.Series(np.where(YES, "b", "a")), ["a", "b"], "U"),
    "arrow": (pa.array(np.where(YES, 3, 1)), [1, 3], "i"),
    "days": (
        [datetime.date(2026, 11, 18 + yes) for yes in YES],
        [datetime.date(2026, 11, 18), datetime.date(2026, 11, 19)],
        "M",
    ),
    "times of a zone": (
        pd.Series(pd.Timestamp("2026-11-18", tz="UTC") + pd.to_timedelta(1 * YES, "D")),
        ["2026-11-18 00:00:00+00:00", "2026-11-19 00:00:00+00:00"],
        "O",
    ),
    "lengths of time": (pd.to_timedelta(1 + YES, "s"), ["1000000000 nanoseconds"], "U"),
    "several kinds": ([3, "a"] * 10, ["3", "a"], "U"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(kind, tmp_path):
    y, classes, letter = LABELS[kind]
    x = YES[:, None] * 4.0
    clf = classifier(method="ce", network="linear", recipe={"epochs": 10, "lr": 0.1}).fit(x, y)
    if kind != "lengths of time":  # their unit is that of the version of pandas
        assert clf.classes_.tolist() == classes
    assert clf.classes_.dtype.kind == letter
    assert clf.score(x, y) == 1
    clf.save(tmp_path / "m")
    loaded = ng.NoisyLabelClassifier.load(tmp_path / "m")
    assert loaded.classes_.dtype == clf.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(x), clf.predict(x))


@pytest.mark.parametrize(
    "y",
    [
        ["a", "b", None, "a"],
        [1.0, 2.0, np.nan, 1.0],
        pd.Series([1, 2, None, 1], dtype="Int64"),
        pd.Series(["a", "b", None, "a"], dtype="string"),
        polars.Series(["a", "b", None, "a"]),
        np.array(["2020-01-01", "2020-01-02", "NaT", "2020-01-01"], "M8[D]"),
    ],
)
def test_missing_labels_are_refused_by_their_row(y):
    with pytest.raises(InputError, match="1 of 4 labels are missing, the first in row 2; drop these rows"):
        classifier().fit(np.eye(4), y)
    clf = classifier(method="ce", network="linear", recipe={"epochs": 1})
    with pytest.raises(InputError, match="the first in row 2"):
        clf.fit(np.eye(4), [0, 1, 0, 1], X_val=np.eye(4), y_val=y)


def test_labels_that_are_none_are_refused_by_their_row():
    with pytest.raises(InputError, match="y has a dict in row 1; labels must be text, whole numbers"):
        classifier().fit(np.eye(2), np.array(["a", {}], dtype=object))


@pytest.mark.parametrize("form", [list, np.array, pd.Series, polars.Series, pa.array, "named"])
def test_texts_alone_are_a_column(form):
    frame, y = mixed()
    texts = frame["review"] if form == "named" else form(frame["review"].tolist())
    clf = classifier(method="ce", network="mlp-16", recipe={"epochs": 20}).fit(texts, y)
    assert clf.feature_names_in_.tolist() == ["review" if form == "named" else "text"]
    assert clf.score(frame["review"].tolist(), y) > 0.9  # whatever the texts are called
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        classifier().fit([1.0, 2.0], [0, 1])


def test_texts_in_an_array_of_numbers_are_named():
    for x in (np.array([[1, 2], [3, "red"]], dtype=object), np.array([["1", "2"], ["3", "red"]])):
        row, text = (1, "red") if x.dtype == object else (0, "1")
        with pytest.raises(InputError, match=f"X has the text '{text}' in row {row}, column .*as a table"):
            classifier().fit(x, [0, 1])


def test_arrays_for_a_model_of_a_frame_have_its_columns_in_order(tmp_path):
    frame, y = mixed()
    frame = frame[["number"]].assign(empty=np.nan, flag=frame.flag)[["empty", "number", "flag"]]
    for columns in (list("abc"), [2, 1, 0]):  # names that are no text are no names for scikit-learn
        frame.columns = columns
        clf = classifier(method="ce", network="linear", recipe={"epochs": 3}).fit(frame, y)
        clf.save(tmp_path / "m")
        for one in (clf, ng.NoisyLabelClassifier.load(tmp_path / "m")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the columns have no names
                np.testing.assert_array_equal(one.predict_proba(frame.to_numpy()), clf.predict_proba(frame))


@pytest.mark.parametrize("form", ["array", "table"])
def test_the_answers_of_several_annotators(form):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 2)) + 3 * np.eye(3)[y][:, :2]
    knows = np.array([0.95, 0.9, 0.4, 0.4, 0.4])
    answers = np.where(rng.random((300, 5)) < knows, y[:, None], rng.integers(3, size=(300, 5)))
    answers[rng.random((300, 5)) < 0.2] = -1
    row, person = np.nonzero(answers >= 0)
    table = pd.DataFrame({"row": row, "annotator": person, "label": answers[row, person]})
    clf = classifier(method="ce", network="mlp-16", recipe={"epochs": 20})
    clf.fit(x, answers if form == "array" else table)
    assert list(clf.classes_) == [0, 1, 2]
    assert clf.score(x, y) > 0.85
    assert (clf.consensus_.labels == y).mean() > 0.9
    assert list(np.argsort(-clf.consensus_.accuracy)[:2]) == [0, 1]
    with pytest.raises(InputError, match="rows of the answers must be whole numbers from 0 to 298, got 299"):
        clf.fit(x[:299], table)


def test_class_weights_are_sample_weights(digits):
    x, y = digits.train.x[:200], digits.train.y[:200] % 3
    weights = {0: 1.0, 1: 5.0, 2: 0.5}
    plain = classifier(method="ce", network="linear", recipe={"epochs": 3})
    one = clone(plain).set_params(class_weight=weights).fit(x, y)
    other = clone(plain).fit(x, y, sample_weight=np.array([1.0, 5.0, 0.5])[y])
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))
    balanced = clone(plain).set_params(class_weight="balanced").fit(x, y)
    other = clone(plain).fit(x, y, sample_weight=(200 / 3 / np.bincount(y))[y])
    np.testing.assert_array_equal(balanced.predict_proba(x), other.predict_proba(x))
    with pytest.raises(InputError, match="class_weight must be"):
        clone(plain).set_params(class_weight="equal").fit(x, y)
    with pytest.raises(InputError, match="class_weight has the label 7, which no training row has"):
        clone(plain).set_params(class_weight={7: 1.0}).fit(x, y)


def test_class_weights_are_saved(digits, tmp_path):
    clf = classifier(method="ce", network="linear", recipe={"epochs": 1}, class_weight={0: 2.0, 1: 1.0})
    clf.fit(digits.train.x[:50], digits.train.y[:50] % 2).save(tmp_path)
    assert ng.NoisyLabelClassifier.load(tmp_path).class_weight == {0: 2.0, 1: 1.0}


@pytest.mark.parametrize("k", [2, 3])
def test_the_decision_function_orders_as_the_probabilities(digits, k):
    x, y = digits.train.x[:100], digits.train.y[:100] % k
    clf = classifier(method="ce", network="linear", recipe={"epochs": 5}).fit(x, y)
    scores, probs = clf.decision_function(x), clf.predict_proba(x)
    if k == 2:
        np.testing.assert_allclose(1 / (1 + np.exp(-scores)), probs[:, 1], atol=1e-12)
    else:
        np.testing.assert_allclose(np.exp(scores), probs, atol=1e-12)


def test_sample_weights_are_routed(digits):
    x, y = digits.train.x[:100], digits.train.y[:100] % 2
    weight = np.linspace(0.1, 2, 100)
    clf = classifier(method="ce", network="linear", recipe={"epochs": 2})
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(MinMaxScaler(), clone(clf).set_fit_request(sample_weight=True))
        probs = pipeline.fit(x, y, sample_weight=weight).predict_proba(x)
    scaled = MinMaxScaler().fit_transform(x)
    np.testing.assert_array_equal(probs, clf.fit(scaled, y, sample_weight=weight).predict_proba(scaled))


def test_a_verbose_fit_says_what_columns_were_read_as(capsys):
    frame, y = mixed()
    classifier(method="ce", network="linear", recipe={"epochs": 1}, verbose=1).fit(
        frame[["number", "colour"]], y
    )
    assert "colour  category (3 values)" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Invalid parameter 'warm_start'"):
        classifier().set_params(warm_start=True)


def test_frames_whose_names_are_of_several_kinds(tmp_path):
    frame, y = mixed()
    frame = frame[["number", "colour"]].rename(columns={"number": 0}).assign(**{"key": list(frame["flag"])})
    clf = classifier(method="ce", network="linear", recipe={"epochs": 2}).fit(frame, y)
    assert [column.name for column in clf.reader_.columns] == ["0", "colour", "key"]
    assert clf.n_features_in_ == 3
    assert not hasattr(clf, "feature_names_in_")
    clf.save(tmp_path / "m")
    np.testing.assert_array_equal(
        ng.NoisyLabelClassifier.load(tmp_path / "m").predict_proba(frame), clf.predict_proba(frame)
    )
    clf.fit(frame.rename(columns={0: "number"}), y)
    assert list(clf.feature_names_in_) == ["number", "colour", "key"]
    clf.fit(frame, y)  # nothing is left of the names of an earlier fit
    assert not hasattr(clf, "feature_names_in_")


def test_a_warning_about_columns_points_to_the_callers_line():
    frame, y = mixed()
    with pytest.warns(UserWarning, match="not used") as caught:
        classifier(method="ce", network="linear", recipe={"epochs": 1}).fit(
            frame[["number"]].assign(customer_id=np.arange(60)), y
        )
    assert caught[0].filename == __file__


NAN = np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, 1.0]])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (NAN, r"contains NaN in row 1, column 1 \(2 such values in all\).*give a table"),
        (sparse.csr_array(NAN), r"contains NaN in row 1, column 1 \(2 such values in all\)"),
        (np.where(np.isnan(NAN), np.inf, NAN), r"contains infinity in row 1, column 1.*mend it"),
        ({"a": [1, 2, 3]}, r"X is a dict with named columns.*pandas.DataFrame\(X\)"),
        ([{"a": 1}, {"a": 2}, {"a": 3}], r"X is a list with named columns"),
        (np.array([(1, 2.0)] * 3, dtype=[("a", "i8"), ("b", "f8")]), "X is a ndarray with named columns"),
        ("shop.csv", "X is the text 'shop.csv', expected an array or a table; read a file first"),
        (
            pd.DataFrame({"a": pd.Series(["x", "y", "\ud800"], dtype=object)}),
            "column 'a' has a text in row 2",
        ),
        (["x", "y", "\ud800"], "column 'text' has a text in row 2 that is not Unicode"),
    ],
)
def test_what_is_no_array_and_no_table_is_named_with_the_remedy(x, message):
    with pytest.raises(InputError, match=message):
        classifier().fit(x, [0, 1, 0])


def test_uuids_are_texts():
    frame, y = mixed()
    keys = [uuid.UUID(int=i) for i in range(60)]
    with pytest.warns(UserWarning, match=r"'key' \(names the rows: a different text in each\)"):
        clf = classifier(method="ce", network="linear", recipe={"epochs": 1}).fit(
            frame[["number"]].assign(key=keys, group=keys[:2] * 30), y
        )
    assert clf.reader_.columns[1].categories == (str(keys[0]), str(keys[1]))
