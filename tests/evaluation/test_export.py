"""Exported programs say what the classifier says, for any number of rows."""

import importlib.util

import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch.export, about itself


@pytest.mark.parametrize("method", ["ce", "ln", "gce"])
def test_vectors_far_from_zero(tmp_path, method):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (rng.normal(size=(60, 4)) + y[:, None] + 1000).astype(np.float32)
    fitted = ng.train((x, y), method, "mlp-8", {"epochs": 3}, device="cpu", progress=False)
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


@pytest.mark.slow
def test_onnxruntime_says_the_same(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    data = ng.data.load("moons")
    fitted = ng.train(data, "ce", "mlp-8", {"epochs": 2}, device="cpu", progress=False)
    fitted.export(tmp_path / "m.onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    (probs,) = session.run(None, {session.get_inputs()[0].name: data.test.x[:9].astype(np.float32)})
    np.testing.assert_allclose(probs, fitted.predict_proba(data.test.x[:9]), atol=1e-4)
