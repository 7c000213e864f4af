from __future__ import annotations

import numpy as np
import pytest

import noisegate as ng
from noisegate.auditing import crossfit
from noisegate.auditing.crossfit import Fitting, Fold, Labels, cross_fit, deal, hold_out
from noisegate.auditing.places import Where
from noisegate.errors import InputError, OtherRunError

QUICK = Fitting("ce", "mlp-8", {"epochs": 2, "batch_size": 32}, device="cpu")


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    x = (3 * np.eye(3)[y] + rng.normal(size=(90, 3))).astype(np.float32)
    return ng.data.load((x, y))


def test_folds_are_even_in_every_class_and_follow_the_seed():
    y = np.repeat([0, 1, 2], [50, 31, 7])
    fold = deal(y, 5, seed=0)
    for label, n in enumerate([50, 31, 7]):
        counts = np.bincount(fold[y == label], minlength=5)
        assert counts.sum() == n
        assert np.ptp(counts) <= 1
    assert np.ptp(np.bincount(fold)) <= 1
    np.testing.assert_array_equal(fold, deal(y, 5, seed=0))
    assert (fold != deal(y, 5, seed=1)).any()


def test_every_row_is_predicted_by_a_network_that_has_not_seen_it(blobs, monkeypatch):
    seen = []

    def run(self: Fold):
        seen.append(set(self.train.train.x[:, 0].tolist()))
        assert not seen[-1] & set(self.held[:, 0].tolist())
        assert self.train.train.clean is None
        assert self.train.test is None
        return {"probs": np.tile(self.held[:, :1], 3)}

    monkeypatch.setattr(Fold, "run", run)
    data = blobs.with_labels(blobs.train.y)  # has clean labels, which must not travel
    probs = cross_fit(data, QUICK, 4, Where()).probs
    np.testing.assert_allclose(probs[:, 0], blobs.train.x[:, 0])
    assert len(seen) == 4


def test_other_labels_rows_and_weights_reach_training_and_folds_stay(blobs, monkeypatch):
    given = []
    monkeypatch.setattr(
        Fold, "run", lambda self: given.append(self) or {"probs": np.zeros((len(self.held), 3))}
    )
    keep = np.arange(90) % 3 > 0
    weight = np.arange(90.0)
    fold = deal(blobs.train.y, 3, 0)
    labels = [Labels((blobs.train.y + number) % 3, keep, weight) for number in range(3)]
    hold_out(blobs, QUICK, [fold == number for number in range(3)], Where(), labels=labels)
    for number, task in enumerate(given):
        rows = np.flatnonzero((fold != number) & keep)
        np.testing.assert_array_equal(task.train.train.y, (blobs.train.y[rows] + number) % 3)
        np.testing.assert_array_equal(task.weight, weight[rows])
        np.testing.assert_array_equal(task.held, blobs.train.x[fold == number])


def test_a_killed_cross_fit_goes_on_and_ends_the_same(blobs, tmp_path, monkeypatch):
    whole = cross_fit(blobs, QUICK, 3, Where(), embed=True)
    real, runs = Fold.run, []

    def dying(self: Fold):
        if len(runs) == 2:
            raise KeyboardInterrupt
        runs.append(self)
        return real(self)

    monkeypatch.setattr(Fold, "run", dying)
    with pytest.raises(KeyboardInterrupt):
        cross_fit(blobs, QUICK, 3, Where(tmp_path), embed=True)
    runs.clear()
    again = cross_fit(blobs, QUICK, 3, Where(tmp_path), embed=True)
    assert len(runs) == 1
    np.testing.assert_array_equal(again.probs, whole.probs)
    np.testing.assert_array_equal(again.features, whole.features)
    assert whole.features.shape == (90, 8)
    with pytest.raises(OtherRunError, match="other data or settings"):
        cross_fit(blobs, QUICK, 4, Where(tmp_path))


def test_the_last_layers_input_is_found(blobs):
    fitted = ng.train(blobs, "ce", "mlp-8", {"epochs": 1}, device="cpu")
    features = crossfit.last_layer(fitted, blobs.train.x)
    layer = [m for m in fitted.network.modules() if hasattr(m, "out_features")][-1]
    logits = features @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, fitted.predict_proba(blobs.train.x), atol=1e-5)


@pytest.mark.parametrize("folds", [1, 0, 2.5, True])
def test_impossible_folds(blobs, folds):
    with pytest.raises(InputError, match="folds must be"):
        cross_fit(blobs, QUICK, folds, Where())


def test_a_damaged_fold_is_trained_again(blobs, tmp_path, caplog):
    where = Where(tmp_path)
    first = cross_fit(blobs, QUICK, 2, where).probs
    fold = tmp_path / "folds" / "fold-2.npz"
    for damage in (b"", fold.read_bytes()[:200], b"PK\x03\x04" + bytes(100)):
        fold.write_bytes(damage)
        np.testing.assert_array_equal(cross_fit(blobs, QUICK, 2, where).probs, first)
    np.savez(fold, probs=np.zeros((3, 7)))
    np.testing.assert_array_equal(cross_fit(blobs, QUICK, 2, where).probs, first)
    assert "trained once more" in caplog.text
