import numpy as np
import pytest

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import UnknownNameError

LAST = {"epochs": 2, "batch_size": 16}


@pytest.fixture
def noisy():
    data = ng.data.load("moons", seed=1).corrupt(ng.noise.Symmetric(0.4), seed=1).hold_out(40, seed=1)
    flipped = ng.noise.Symmetric(0.4).corrupt(data.test.y, n_classes=2, seed=2)
    test = Split(data.test.x, flipped, data.test.y)
    return Dataset("noisy", data.train, test, data.validation, data.classes)


def test_every_number_is_what_it_says(noisy):
    fitted = ng.train(noisy, "forward", "mlp-8", LAST, device="cpu")
    said = fitted.predict(noisy.train.x)
    wrong = noisy.train.wrong
    clean = noisy.train.clean
    expected = {
        "train_right_accuracy": (said == clean)[~wrong].mean(),
        "train_recovered": (said == clean)[wrong].mean(),
        "train_memorised": (said == noisy.train.y)[wrong].mean(),
        "train_clean_accuracy": (said == clean).mean(),
        "validation_clean_accuracy": (fitted.predict(noisy.validation.x) == noisy.validation.clean).mean(),
        "test_accuracy": (fitted.predict(noisy.test.x) == noisy.test.clean).mean(),
        "noisy_test_accuracy": (fitted.predict(noisy.test.x) == noisy.test.y).mean(),
    }
    for name, value in expected.items():
        assert fitted.metrics[name] == pytest.approx(value), name
    # The given labels have the likelihood T'p, not p.
    probs = fitted.predict_proba(noisy.test.x) @ np.asarray(fitted.extras["transition"])
    likelihood = np.log(probs[np.arange(len(probs)), noisy.test.y]).mean()
    assert fitted.metrics["noisy_test_log_likelihood"] == pytest.approx(likelihood, rel=1e-4)


@pytest.mark.parametrize(
    ("parts", "seen"),
    [((), set()), (("validation",), {"validation_clean_accuracy"}), (("test",), {"test_accuracy"})],
)
def test_only_what_is_asked_for_is_looked_at_in_an_epoch(noisy, parts, seen):
    fitted = ng.train(noisy, "ce", "mlp-8", LAST, device="cpu", evidence=parts)
    looked = {"test_accuracy", "train_memorised", "validation_clean_accuracy"} & set(fitted.history[0][0])
    assert looked == seen
    assert {"test_accuracy", "train_memorised", "validation_clean_accuracy"} <= set(fitted.metrics)


def test_clean_test_labels_have_no_noisy_metrics():
    fitted = ng.train(ng.data.load("moons"), "ce", "mlp-8", LAST, device="cpu")
    assert not any(name.startswith("noisy_test") for name in fitted.metrics)


def test_an_unknown_part_is_refused(noisy):
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        ng.train(noisy, "ce", "mlp-8", LAST, device="cpu", evidence=("trian",))
