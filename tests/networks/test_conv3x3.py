"""Convolutions of 3 x 3 whose weights get their gradient from a kernel of our own."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

from noisegate.networks._conv3x3 import PLANS, Conv3x3, weight_gradient
from noisegate.networks.prepare import Prepared
from noisegate.networks.wide_resnet import WideResNet
from noisegate.training.compiling import compiled_networks

#: Every plan's kernel, interpreted on the CPU, against torch's gradients in float64.
INTERPRETED = """
import torch
from noisegate.networks import _conv3x3
from noisegate.networks._conv3x3 import PLANS

torch.manual_seed(0)
for (n_in, n_out), plan in PLANS.items():
    for size in (3, 7, 5), (2, 4, 4), (1, 1, 1):
        plan = plan._replace(block=16, parts=3)
        x, grad = (
            torch.randn(size[0], n, *size[1:]).contiguous(memory_format=torch.channels_last) for n in (n_in, n_out)
        )
        parts = _conv3x3._parts(x, plan)[0]
        out = torch.full((parts, n_out, 3, 3, n_in), float("nan"))
        _conv3x3._by_kernel(x, grad, out, plan)
        wanted = _conv3x3._by_torch(grad.double(), x.double(), torch.empty(n_out, n_in, 3, 3).double(), 1)
        found = out.double().sum(dim=0).permute(0, 3, 1, 2)
        assert (found - wanted).norm() < 1e-6 * wanted.norm(), (n_in, n_out, size)
        print(n_in, n_out, *size)
"""


@pytest.fixture
def everywhere(monkeypatch):
    """The kernel's way wherever there is a plan, so also on a CPU, where torch stands in for the kernel."""
    monkeypatch.setattr(Conv3x3, "has_kernel", lambda self, x: (self.in_channels, self.out_channels) in PLANS)


def test_uncompiled_it_is_an_ordinary_convolution():
    ours, plain = Conv3x3(32, 32), nn.Conv2d(32, 32, 3, padding=1, bias=False)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(2, 32, 6, 5)
    assert torch.equal(ours(x), plain(x))


@pytest.mark.parametrize(("n_in", "n_out"), PLANS)
def test_partial_sums_are_those_of_the_gradient(n_in, n_out):
    # In float64: sums in float32, each in its own order, differ by more than the tolerance now and then.
    x, grad = (torch.randn(3, n, 7, 5, dtype=torch.float64) for n in (n_in, n_out))
    weight = torch.zeros(n_out, n_in, 3, 3, dtype=torch.float64, requires_grad=True)
    F.conv2d(x, weight, padding=1).backward(grad)
    found = weight_gradient(x, grad).sum(dim=0).permute(0, 3, 1, 2)
    torch.testing.assert_close(found, weight.grad.float())
    checks = "test_schema", "test_faketensor", "test_aot_dispatch_static"
    torch.library.opcheck(weight_gradient, (x.float(), grad.float()), test_utils=checks)


def test_the_kernel_computes_what_torch_does():
    pytest.importorskip("triton", reason="Triton has no wheel for this system")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3 * len(PLANS)


def test_a_compiled_network_has_the_gradients_of_an_uncompiled_one(everywhere, graphs):
    """Where warnings are errors, as they are here, and torch warns of its own way of tracing."""
    torch.manual_seed(0)
    network = WideResNet((3, 16, 16), 10, depth=10, widen=2).to(memory_format=torch.channels_last)
    prepared = Prepared(network, torch.zeros(3, 1, 1), torch.ones(3, 1, 1), {"input_shape": [3, 16, 16]})
    x, labels = torch.randn(4, 3, 16, 16), torch.arange(4)

    def gradients():
        network.zero_grad()
        F.cross_entropy(prepared(x), labels).backward()
        return [p.grad.clone() for p in network.parameters()]

    wanted = gradients()
    with compiled_networks(prepared):
        found = gradients()
    assert "noisegate.weight_gradient" in "".join(
        graph.print_readable(print_output=False) for graph in graphs
    )
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        assert a.stride() == b.stride()


def test_it_is_used_where_it_was_measured():
    """Tensors of no memory that say they are on a GPU."""
    with FakeTensorMode():

        def has(layer, *shape, device="cuda", dtype=torch.bfloat16):
            return layer.has_kernel(torch.empty(*shape, device=device, dtype=dtype))

        layer = Conv3x3(64, 64)
        assert has(layer, 128, 64, 16, 16)
        assert has(layer, 1, 64, 8, 8)
        assert not has(layer, 129, 64, 16, 16)
        assert not has(layer, 128, 64, 32, 32)
        assert not has(layer, 128, 64, 16, 16, dtype=torch.float32)
        assert not has(layer, 128, 64, 16, 16, device="cpu")
        assert not has(Conv3x3(48, 48), 2, 48, 8, 8)
        layer.weight = nn.Parameter(layer.weight.detach().to(torch.bfloat16))
        assert not has(layer, 128, 64, 16, 16)
