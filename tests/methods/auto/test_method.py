"""`auto`: what it finds, what it must not see, and that it comes back as it was."""

import logging

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.methods.auto import vectors
from noisegate.methods.auto.method import affordable
from noisegate.networks.ensemble import Ensemble
from noisegate.runs.run import make_job

#: A bag that is trained for a moment: most tests are about something else.
QUICK = {"epochs": 2}


def blobs(n=240, k=3, d=6, seed=0, noise=0.25):
    rng = np.random.default_rng(seed)
    clean = np.arange(n) % k
    x = 2.5 * rng.normal(size=(k, d))[clean] + rng.normal(size=(n, d))
    wrong = rng.random(n) < noise
    return x, np.where(wrong, (clean + rng.integers(1, k, n)) % k, clean), clean


def fit(x, y, **settings):
    return ng.NoisyLabelClassifier(**{"recipe": QUICK, "random_state": 0, "device": "cpu"} | settings).fit(
        x, y
    )


@pytest.fixture(scope="module")
def fitted():
    x, y, clean = blobs()
    return fit(x, y), x, y, clean


def test_one_fit_gives_the_classifier_and_the_wrong_labels(fitted):
    clf, x, y, clean = fitted
    assert (clf.predict(x) == clean).mean() > 0.97
    issues = clf.label_issues_
    columns = ["row", "given_label", "suggested_label", "quality", "is_label_issue", "is_sure"]
    assert list(issues.columns) == columns
    assert sorted(issues.row) == list(range(len(y)))
    assert (issues.given_label == y[issues.row]).all()
    assert issues.quality.is_monotonic_increasing
    wrong = (y != clean)[issues.row]
    flagged = issues.is_label_issue.to_numpy()
    assert 2 * (wrong & flagged).sum() / (wrong.sum() + flagged.sum()) > 0.9
    assert (issues.suggested_label.to_numpy() == clean[issues.row])[wrong & flagged].mean() > 0.95
    extras = clf.fitted_.extras
    assert extras["noise_rate"] == pytest.approx((y != clean).mean(), abs=0.06)
    assert extras["transition"].sum(1) == pytest.approx(np.ones(3))
    assert extras["probs"].shape == (240, 3)


def test_probabilities_are_about_the_clean_class(fitted):
    clf, _, _, _ = fitted
    x, _, clean = blobs(n=600)  # the same centres, and rows of which some are new
    probs = clf.predict_proba(x)
    held_out = clf.fitted_.extras["probs"].numpy()
    # Models of labels of which a quarter is wrong are at most so sure of any of them.
    assert held_out.max(1).mean() < 0.8
    right = (probs.argmax(1) == clean).mean()
    assert right > 0.95
    assert abs(probs.max(1).mean() - right) < abs(held_out.max(1).mean() - right) / 1.25
    assert clf.fitted_.network.network.sharpness > 1.2


def test_it_survives_its_folder(fitted, tmp_path):
    clf, x, _, _ = fitted
    clf.save(tmp_path)
    loaded = ng.NoisyLabelClassifier.load(tmp_path, device="cpu")
    assert isinstance(loaded.fitted_.network.network, Ensemble)
    assert np.array_equal(loaded.predict_proba(x), clf.predict_proba(x))
    assert loaded.label_issues_.equals(clf.label_issues_)


def test_a_rows_own_label_does_not_reach_what_candidates_say_about_it():
    # The first round sees other rows alone. In the second, others were weighed by models that had seen the label.
    x, y, _ = blobs(n=120)
    said = []
    for label in (y[5], (y[5] + 1) % 3):
        given = y.copy()
        given[5] = label
        job = make_job(
            ng.data.load((x, given)), "auto", ng.Recipe(epochs=2, batch_size=30), 0, torch.device("cpu")
        )
        torch.manual_seed(0)
        library = vectors.Library(job, 5, 1)
        # The same folds for both, so that nothing but the label differs.
        library.rows.trains.copy_((torch.arange(120) % 5)[:, None] != torch.arange(5))
        found = [vectors.fit_linear(library.rows, view, name) for name, view in library.views.items()]
        found += [library._kernel(library.rows, name, number) for name in library.views for number in (0, 1)]
        said.append(torch.cat([each.held_out[:, 5] for each in found]))
    assert torch.equal(*said)


def test_held_out_probabilities_of_pure_noise_are_no_better_than_chance():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 20)), rng.integers(0, 4, 300)
    probs = fit(x, y).fitted_.extras["probs"].numpy()
    # Three standard errors above a quarter; a leak of the labels would be at 1.
    assert (probs.argmax(1) == y).mean() < 0.25 + 3 * np.sqrt(0.25 * 0.75 / 300) + 0.03


def test_clean_labels_are_not_looked_at():
    x, y, clean = blobs()
    with_clean = ng.data.Dataset("a", ng.data.Split(x, y, clean=clean), classes=tuple("abc"))
    without = ng.data.Dataset("a", ng.data.Split(x, y), classes=tuple("abc"))
    one, two = (ng.train(data, "auto", recipe=QUICK, device="cpu") for data in (with_clean, without))
    assert np.array_equal(one.predict_proba(x), two.predict_proba(x))
    assert np.array_equal(one.label_issues(), two.label_issues())


def test_clean_data_are_left_alone():
    x, _, clean = blobs(n=300, noise=0)
    clf = fit(x, clean)
    assert (clf.predict(x) == clean).mean() > 0.98
    assert clf.fitted_.extras["noise_rate"] < 0.05
    assert not clf.label_issues_.is_sure.any()


def test_two_classes_named_by_texts():
    x, y, clean = blobs(k=2)
    names = np.array(["no", "yes"])
    clf = fit(x, names[y])
    assert (clf.predict(x) == names[clean]).mean() > 0.97
    assert set(clf.label_issues_.suggested_label) <= {"no", "yes"}


def test_names_of_classes_decide_nothing():
    x, y, clean = blobs()
    order = np.array([2, 0, 1])
    assert (fit(x, order[y]).predict(x) == order[clean]).mean() > 0.97


def test_a_class_of_one_row_is_kept_and_said(caplog):
    x, y, _ = blobs(n=60, noise=0)
    x, y = np.vstack([x, x.max(0) + 10]), np.append(y, 3)
    with caplog.at_level(logging.INFO, logger="noisegate"):
        clf = fit(x, y)
    assert "1 of 4 classes have a single row each" in caplog.text
    assert clf.predict_proba(x).shape == (61, 4)


def test_rows_of_no_weight_are_left_out_and_rows_are_counted_as_the_caller_counts():
    x, y, clean = blobs()
    weight = np.ones(len(y))
    weight[::4] = 0
    y = np.where(weight > 0, y, (clean + 1) % 3)
    clf = ng.NoisyLabelClassifier(recipe=QUICK, random_state=0, device="cpu").fit(x, y, sample_weight=weight)
    assert (clf.predict(x) == clean).mean() > 0.95
    issues = clf.label_issues_
    assert sorted(issues.row) == list(np.flatnonzero(weight))
    assert (issues.given_label == y[issues.row]).all()


def test_rows_are_counted_as_the_caller_counts_where_some_are_held_out():
    x, y, _ = blobs()
    clf = fit(x, y, recipe={"epochs": 2, "keep": "best"})
    issues = clf.label_issues_
    assert len(issues) == 216
    assert (issues.given_label == y[issues.row]).all()


def own_network(shape, n_outputs):
    return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, n_outputs))


def test_a_users_network_is_trained_once_a_fold_and_averaged(tmp_path):
    x, y, clean = blobs()
    clf = fit(x, y, network=own_network, recipe={"epochs": 30})
    assert len(clf.fitted_.history) == 5
    assert (clf.predict(x) == clean).mean() > 0.95
    members = clf.fitted_.network.network.members
    prepared = clf.fitted_.network.prepare(torch.from_numpy(x))
    mean = torch.stack([member(prepared).softmax(1) for member in members]).mean(0)
    np.testing.assert_allclose(clf.predict_proba(x), mean.detach().numpy(), atol=1e-5)
    clf.save(tmp_path)
    loaded = ng.NoisyLabelClassifier.load(tmp_path, network=own_network, device="cpu")
    assert np.array_equal(loaded.predict_proba(x), clf.predict_proba(x))


def test_where_folds_cost_too_much_there_is_one_run_that_judges_the_labels(monkeypatch, caplog):
    x, y, clean = blobs()
    monkeypatch.setattr("noisegate.methods.auto.method.AFFORDABLE", {"cpu": 0.0, "cuda": 0.0})
    with caplog.at_level(logging.INFO, logger="noisegate"):
        clf = fit(x, y, network="mlp-32", recipe={"epochs": 30})
    assert "auto trains one network" in caplog.text
    # Two trials of a fifth, and the run.
    assert [len(each) for each in clf.fitted_.history] == [6, 6, 30]
    assert (clf.predict(x) == clean).mean() > 0.95
    issues = clf.label_issues_
    wrong = (y != clean)[issues.row]
    assert wrong[: wrong.sum()].mean() > 0.8
    insisted = fit(x, y, network="mlp-32", method="auto", recipe={"epochs": 3}).set_params(method__folds=2)
    assert len(insisted.fit(x, y).fitted_.history) == 2


def test_the_cost_of_folds_is_counted_in_operations(monkeypatch):
    data = ng.data.load((np.zeros((100, 50)), np.arange(100) % 2))
    job = make_job(data, "mlp-100", ng.Recipe(epochs=10), 0, torch.device("cpu"))
    # Twice as many operations as weights forward, that three times with backward; ten epochs of five folds.
    operations = 3 * 2 * (50 * 100 + 100 * 2) * 100 * 10 * 5
    for limit, expected in ((operations, True), (operations - 1, False)):
        monkeypatch.setattr("noisegate.methods.auto.method.AFFORDABLE", {"cpu": limit, "cuda": limit})
        assert affordable(job) is expected


def test_a_killed_run_resumes_to_the_same_result(tmp_path):
    x, y, _ = blobs(n=120)
    settings = {"method": "auto", "recipe": {"epochs": 4}, "seed": 3, "device": "cpu"}
    undisturbed = ng.train((x, y), **settings)

    class Killed(BaseException):
        pass

    phases = []

    def stop(epoch):
        phases.append(epoch.phase)
        if len(phases) == 5:  # the second epoch of the second bag, or the end of the only one
            raise Killed

    with pytest.raises(Killed):
        ng.train((x, y), **settings, folder=tmp_path, on_epoch=stop)
    resumed = ng.train((x, y), **settings, folder=tmp_path)
    assert np.array_equal(resumed.predict_proba(x), undisturbed.predict_proba(x))
    assert resumed.label_issues().equals(undisturbed.label_issues())


def test_what_it_cannot_do_is_refused():
    x, y, _ = blobs(n=30)
    with pytest.raises(ng.errors.InputError, match="folds must be a whole number of at least 2"):
        fit(x, y, method=ng.methods.get("auto", folds=1))
    with pytest.raises(AttributeError, match="does not judge labels"):
        _ = fit(x, y, method="ce").label_issues_


def test_many_rows_do_with_fewer_settings(monkeypatch):
    x, y, clean = blobs()
    monkeypatch.setattr("noisegate.methods.auto.candidates.MANY_ROWS", 100)
    job = make_job(ng.data.load((x, y)), "auto", ng.Recipe(epochs=2), 0, torch.device("cpu"))
    library = vectors.Library(job, 5, 1)
    linear = vectors.fit_linear(library.rows, library.views["each"], "linear:each")
    assert len(linear.held_out) == linear.network(library.rows.x).shape[1] == 5
    assert (fit(x, y).predict(x) == clean).mean() > 0.95
