"""The probe "label_terms" against dense linear algebra."""

import numpy as np
import pytest

import noisegate as ng
from noisegate.errors import InputError
from noisegate.studies import probes


@pytest.fixture(scope="module")
def data():
    return ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)


def trained(data, method="ln", **params):
    recipe = {"epochs": 1, "batch_size": 128}
    return ng.train(data, ng.methods.get(method, **params), "mlp-16", recipe, 0, "cpu", progress=False)


def outputs_by_hand(fitted, x):
    """The network in numpy, float64: standardise, one hidden layer, the last layer."""
    state = {k: v.double().numpy() for k, v in fitted.network.state_dict().items()}
    mean, std = state["mean"], state["std"]
    h = ((np.asarray(x, np.float64) / (255 if x.dtype == np.uint8 else 1) - mean) / std).reshape(len(x), -1)
    h = np.maximum(h @ state["network.body.0.weight"].T + state["network.body.0.bias"], 0)
    return h @ state["network.head.weight"].T + state["network.head.bias"]


def test_terms_are_those_of_a_dense_normal(data):
    fitted = trained(data, temperature=0.5, min_scale=0.5)
    found = probes.get("label_terms")(fitted, data)
    assert {v.shape for v in found.values()} == {(len(data.train),)}
    mu, c = np.split(outputs_by_hand(fitted, data.train.x), 2, axis=1)
    target = 0.5 * np.log((0.99 * 11 + 0.01) / 0.01)
    for row in (0, 5, 700, 1346):
        r = target * np.eye(10)[data.train.y[row]] - mu[row]
        half = np.outer(c[row], c[row]) + 0.5 * np.eye(10)
        learnt = r @ np.linalg.solve(half @ half.T, r)
        np.testing.assert_allclose(found["label_term_learnt"][row], learnt, rtol=1e-3)
        np.testing.assert_allclose(found["label_term_identity"][row], r @ r, rtol=1e-4)
    np.testing.assert_array_equal(found["label_term_wrong"], data.train.y != data.train.clean)


def test_under_identity_both_are_the_same(data):
    found = probes.get("label_terms")(trained(data, covariance="identity"), data)
    np.testing.assert_allclose(found["label_term_learnt"], found["label_term_identity"], rtol=1e-6)


def test_other_methods_and_unknown_clean_labels_are_refused(data):
    with pytest.raises(InputError, match="for the method ln, .* CrossEntropy"):
        probes.get("label_terms")(trained(data, "ce"), data)
    clean = ng.data.load("digits")
    with pytest.raises(InputError, match="clean training labels"):
        probes.get("label_terms")(trained(clean), clean)
