"""Predictions before torch is imported are those of torch."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier

import noisegate as ng
from noisegate import without_torch
from noisegate._io.models import read_description, read_weights
from noisegate.networks import build, ensemble
from noisegate.networks.bag import Bag
from noisegate.networks.forest import Forest
from noisegate.networks.prepare import Prepared
from noisegate.networks.projection import Projection
from noisegate.networks.shallow import LandmarkKernel, Linear

#: Objectives whose probabilities take more than a softmax.
NEEDS_TORCH = {"bi-tempered", "het", "het-tau", "het-full"}
QUICK = sorted(set(ng.methods.METHODS) - {"auto", "causalnl"})

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return (rng.normal(size=(90, 4)) + y[:, None] + 1000).astype(np.float32), y


def stored(fitted, folder):
    fitted.save(folder)
    description = read_description(folder)
    return description, read_weights(folder, description["weights"], "np")


@pytest.mark.parametrize("method", QUICK)
def test_every_method_by_name(rows, tmp_path, method):
    fitted = ng.train(rows, method, "mlp-8", {"epochs": 1}, device="cpu", progress=False)
    predict = without_torch.predictor(*stored(fitted, tmp_path))
    assert (predict is None) == (method in NEEDS_TORCH)
    if predict is not None:
        np.testing.assert_allclose(predict(rows[0]), fitted.predict_proba(rows[0]), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("method", "network"),
    [
        (ng.methods.Plain(ng.LogisticNormal, dummy_class=False), "linear"),
        (ng.methods.Plain(ng.LogisticNormal, temperature=0.3, covariance="isotropic"), "mlp"),
        (ng.methods.Plain(ng.ForwardCorrection, transition=np.eye(3) * 0.7 + 0.1, base=ng.GCE(3)), "mlp-5-7"),
    ],
)
def test_settings_and_networks(rows, tmp_path, method, network):
    fitted = ng.train(rows, method, network, {"epochs": 1}, device="cpu", progress=False)
    predict = without_torch.predictor(*stored(fitted, tmp_path))
    np.testing.assert_allclose(predict(rows[0]), fitted.predict_proba(rows[0]), rtol=1e-12, atol=1e-15)


def by_hand(members, heads, front=None, names=None):
    """A model of an ensemble with random weights, and inputs for it."""
    torch.manual_seed(0)
    body = ensemble.Ensemble(members, heads, names, front)
    with torch.no_grad():
        for name, tensor in (*body.named_parameters(), *body.named_buffers()):
            grown = name.endswith(("threshold", "shares"))
            if tensor.is_floating_point() and not grown and not name.endswith(("limit", "gamma")):
                tensor.copy_(torch.randn_like(tensor))
        body.sharpness.fill_(1.5)
        body.weights.copy_(torch.linspace(0, 1, sum(heads)) / sum(heads) * 2)  # the first has none
    width = 7
    spec = {"network": body.spec(), "input_shape": [width], "n_outputs": 3, "pixels": False}
    network = Prepared(body, 1000 + torch.rand(width), 1 + torch.rand(width), spec)
    x = (1000 + np.random.default_rng(0).normal(size=(50, width))).astype(np.float32)
    return ng.Fitted(network, ng.CrossEntropy(3)), x


@pytest.fixture(scope="module")
def forest():
    rng = np.random.default_rng(0)
    grown = RandomForestClassifier(8, random_state=0).fit(rng.normal(size=(90, 7)), np.arange(90) % 3)
    return Forest.from_sklearn(grown, 3)


@pytest.mark.parametrize("projected", [False, True])
def test_ensembles(forest, tmp_path, projected):
    width = 4 if projected else 7
    members = [
        Linear(width, 2, 3),
        LandmarkKernel(width, 6, 3, 3),
        Bag(width, 2, 5, 3),
        build("mlp-6", (width,), 3),
    ]
    members, heads = ([*members], [2, 3, 1, 1]) if projected else ([*members, forest], [2, 3, 1, 1, 1])
    names = [None, None, None, "mlp-6", None][: len(heads)]
    fitted, x = by_hand(members, heads, Projection(7, 4) if projected else None, names)
    predict = without_torch.predictor(*stored(fitted, tmp_path))
    expected = fitted.predict_proba(x)
    assert expected.std(0).min() > 1e-3
    np.testing.assert_allclose(predict(x), expected, rtol=1e-11, atol=1e-14)


def test_a_forest_alone_computes_in_single_precision(forest, tmp_path):
    fitted, x = by_hand([forest], [1])
    fitted.network.network.weights.fill_(1.0)
    predict = without_torch.predictor(*stored(fitted, tmp_path))
    np.testing.assert_allclose(predict(x), fitted.predict_proba(x), atol=1e-6)


def test_every_kind_of_member_has_its_function():
    assert without_torch.MEMBERS.keys() == ensemble.MEMBERS.keys()


def test_what_is_not_known_or_does_not_fit_is_left_to_torch(rows, tmp_path):
    fitted = ng.train(rows, "ce", "mlp-8", {"epochs": 1}, device="cpu", progress=False)
    description, tree = stored(fitted, tmp_path)
    state = tree["network"]
    first = "network.body.0.weight"
    for changed in (
        {**state, "more": np.zeros(1)},
        {name: value for name, value in state.items() if name != first},
        {**state, first: state[first][:, :2]},
        {**state, first: np.full_like(state[first], np.nan)},
    ):
        assert without_torch.predictor(description, {**tree, "network": changed}) is None
    for part, value in (
        ("objective", {"name": "MyObjective", "settings": {"n_classes": 3}}),
        ("network", {**description["network"], "network": None}),
        ("network", {**description["network"], "network": "resnet18"}),
        ("network", {**description["network"], "raw_shape": [5]}),
    ):
        assert without_torch.predictor({**description, part: value}, tree) is None
    assert without_torch.predictor(description, tree) is not None
