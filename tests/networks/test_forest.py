"""Forests as tensors: scikit-learn's probabilities to the last digits, wherever thresholds lie."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from noisegate.networks.forest import FLOOR, Forest


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_it_says_what_scikit_learn_says(kind):
    rng = np.random.default_rng(0)
    # Few values, so that many rows lie on a threshold or beside it.
    x = np.round(rng.normal(size=(300, 6)), 1).astype(np.float32)
    y = rng.integers(0, 4, 300)
    forest = kind(20, bootstrap=True, random_state=0).fit(x, y)
    network = Forest.from_sklearn(forest, 4)
    probs = network(torch.from_numpy(x)).exp().numpy()
    expected = np.maximum(forest.predict_proba(x), FLOOR)
    np.testing.assert_allclose(probs, expected, atol=1e-6)
    again = network.double()(torch.from_numpy(x).double()).exp().numpy()
    np.testing.assert_allclose(again, expected, atol=1e-6)


def test_classes_that_are_missing_get_no_share():
    x = np.arange(20, dtype=np.float32)[:, None]
    forest = RandomForestClassifier(5, random_state=0).fit(x, np.where(x[:, 0] < 10, 1, 3))
    probs = Forest.from_sklearn(forest, 5)(torch.from_numpy(x)).exp()
    assert (probs[:, [0, 2, 4]] <= FLOOR * 1.01).all()
    assert probs[0].argmax() == 1
    assert probs[-1].argmax() == 3


def test_a_tree_that_is_one_leaf():
    x = np.zeros((6, 2), dtype=np.float32)
    forest = RandomForestClassifier(3, random_state=0).fit(x, [0, 1, 0, 1, 0, 0])
    network = Forest.from_sklearn(forest, 2)
    assert network.spec()["depth"] == 0
    np.testing.assert_allclose(
        network(torch.zeros(4, 2)).exp().numpy(), forest.predict_proba(x[:4]), atol=1e-6
    )
