import numpy as np
import pytest

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.errors import MissingDataError
from noisegate.studies import probes


@pytest.fixture(scope="module")
def digits():
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.3), seed=0)
    return data, ng.train(data, "ce", "mlp-16", {"epochs": 3}, seed=0, device="cpu")


def by_hand(probs, labels, bins):
    confidence, right = probs.max(1), probs.argmax(1) == labels
    error = 0.0
    for low in np.arange(bins) / bins:
        inside = (confidence >= low) & (confidence < low + 1 / bins)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


@pytest.mark.parametrize("bins", [10, 100])
def test_it_is_the_error_on_the_test_rows(digits, bins):
    data, fitted = digits
    found = probes.get("calibration")(fitted, data, bins=bins)
    expected = by_hand(fitted.predict_proba(data.test.x), data.test.y, bins)
    assert found == {f"test_ece{bins}": pytest.approx(expected, abs=1e-4)}
    assert expected > 0.01


def test_the_clean_labels_count_where_test_labels_are_noisy(digits):
    data, fitted = digits
    wrong = (data.test.y + 1) % 10
    noisy = Dataset("digits", data.train, Split(data.test.x, wrong, data.test.y), classes=data.classes)
    probe = probes.get("calibration")
    assert probe(fitted, noisy) == probe(fitted, data)


def test_it_needs_test_rows(digits):
    data, fitted = digits
    with pytest.raises(MissingDataError, match="needs test rows"):
        probes.get("calibration")(fitted, Dataset("digits", data.train, None, classes=data.classes))
