"""Exported programs say what the classifier says, for any number of rows."""

import importlib.util

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier

import noisegate as ng
from noisegate.errors import InputError
from noisegate.networks.bag import Bag
from noisegate.networks.ensemble import Ensemble
from noisegate.networks.forest import Forest
from noisegate.networks.prepare import Prepared
from noisegate.networks.shallow import LandmarkKernel, Linear

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch.export, about itself


def test_vectors_far_from_zero(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (rng.normal(size=(60, 4)) + y[:, None] + 1000).astype(np.float32)
    fitted = ng.train((x, y), "ln", "mlp-8", {"epochs": 3}, device="cpu", progress=False)
    fitted.export(tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    for rows in (1, 2, 60):
        np.testing.assert_allclose(
            program(torch.from_numpy(x[:rows])), fitted.predict_proba(x[:rows]), atol=1e-4
        )


def test_pixels(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    fitted = ng.train((x, np.arange(20) % 2), "ce", "lenet5", {"epochs": 1}, device="cpu", progress=False)
    fitted.export(tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    np.testing.assert_allclose(program(torch.from_numpy(x[:7])), fitted.predict_proba(x[:7]), atol=1e-4)


def test_what_cannot_be_written_is_refused(tmp_path):
    fitted = ng.train(ng.data.load("moons"), "ce", "linear", {"epochs": 1}, device="cpu")
    with pytest.raises(InputError, match=r"ends in \.pt2 or \.onnx, got .*m\.pt"):
        fitted.export(tmp_path / "m.pt")
    if importlib.util.find_spec("onnx") is None:
        with pytest.raises(InputError, match="needs the package onnx: pip install onnx"):
            fitted.export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def ensemble_of_every_kind(n_inputs=4, n_outputs=3):
    """What method "auto" ends in, with random weights."""
    generator = torch.Generator().manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, n_inputs)), np.arange(60) % n_outputs
    trees = RandomForestClassifier(5, max_depth=4, random_state=0).fit(x, y)
    members = [
        Linear(n_inputs, 2, n_outputs),
        LandmarkKernel(n_inputs, 5, 2, n_outputs),
        Bag(n_inputs, 3, 8, n_outputs),
        Forest.from_sklearn(trees, n_outputs),
    ]
    for member in members[:3]:
        for weights in member.parameters():
            weights.data.normal_(generator=generator)
    body = Ensemble(members, [2, 2, 1, 1])
    spec = {"network": body.spec(), "input_shape": (n_inputs,), "n_outputs": n_outputs, "pixels": False}
    network = Prepared(body, torch.full((n_inputs,), 1000.0), torch.full((n_inputs,), 2.0), spec)
    return ng.Fitted(network.eval(), ng.CrossEntropy(n_outputs).eval())


def test_ensembles_in_torch(tmp_path):
    fitted = ensemble_of_every_kind()
    fitted.export(tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    x = np.random.default_rng(1).normal(1000, 2, (50, 4)).astype(np.float32)
    for rows in (1, 2, 50):
        expected = fitted.predict_proba(x[:rows])
        np.testing.assert_allclose(program(torch.from_numpy(x[:rows])), expected, atol=1e-4)


@pytest.mark.slow
def test_onnxruntime_says_the_same(tmp_path, capsys):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    fitted = ensemble_of_every_kind()
    fitted.export(tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]  # the weights are in it
    assert capsys.readouterr() == ("", "")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    x = np.random.default_rng(1).normal(1000, 2, (50, 4)).astype(np.float32)
    for rows in (1, 2, 50):
        (probs,) = session.run(["probabilities"], {"x": x[:rows]})
        np.testing.assert_allclose(probs, fitted.predict_proba(x[:rows]), atol=1e-4)


def test_what_samples_is_refused_and_nothing_is_written(tmp_path):
    fitted = ng.train(ng.data.load("moons"), "het", "linear", {"epochs": 1}, device="cpu", progress=False)
    with pytest.raises(InputError, match=r"\(Heteroscedastic\) cannot be written as \.pt2"):
        fitted.export(tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())
