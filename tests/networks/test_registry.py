"""The contract every network keeps, and finding networks and heads by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisegate import networks
from noisegate.errors import InputError, UnknownNameError

SHAPES = {
    "linear": (5,),
    "mlp": (5,),
    "mlp-7-3": (2, 4, 3),
    "lenet5": (2, 9, 6),
    "cnn9": (1, 6, 5),
    "resnet18": (3, 8, 8),
    "resnet34-imagenet": (1, 33, 40),
    "resnet50-cifar": (3, 8, 8),
    "resnet20": (3, 9, 8),
    "resnet32": (1, 8, 8),
    "resnet-v2-50": (3, 33, 40),
    "wrn-10-1": (3, 9, 8),
    "wrn-16-2": (1, 8, 8),
}


@pytest.fixture(params=SHAPES)
def case(request):
    return request.param, SHAPES[request.param]


@pytest.mark.parametrize("n_outputs", [1, 7, 30])
def test_gives_a_flat_vector_that_ends_in_the_head(case, n_outputs, seeded):
    name, shape = case
    network = seeded(name, shape, n_outputs).eval()
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    seen: list[torch.Tensor] = []
    network.head.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs))
    with torch.no_grad():
        outputs = network(x)
    assert outputs.shape == (3, n_outputs)
    assert isinstance(network.head, nn.Linear)
    assert network.head.out_features == n_outputs
    assert outputs is seen[0]
    assert networks.find_head(network, n_outputs) is network.head


def test_outputs_have_all_their_digits_under_autocast(case, seeded):
    name, shape = case
    network = seeded(name, shape, 7).eval()
    seen: list[torch.Tensor] = []
    network.head.register_forward_hook(lambda module, inputs, outputs: seen.append(inputs[0]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        outputs = network(torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)))
    wanted = torch.nn.functional.linear(seen[0].float(), network.head.weight, network.head.bias)
    assert outputs.dtype == torch.float32
    assert torch.equal(outputs, wanted)
    assert networks.build(name, shape, 7).double()(torch.rand(2, *shape).double()).dtype == torch.float64


def test_every_parameter_has_a_gradient(case, seeded):
    name, shape = case
    network = seeded(name, shape, 7)
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(1))
    network(x).square().sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.abs().sum() > 0, key


def test_channels_last_and_batches_make_no_difference(case, seeded):
    name, shape = case
    network = seeded(name, shape, 3).eval()
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        outputs = network(x)
        torch.testing.assert_close(network(x[:1]), outputs[:1], rtol=1e-4, atol=1e-5)
        if len(shape) == 3:
            network = network.to(memory_format=torch.channels_last)
            last = network(x.to(memory_format=torch.channels_last))
            torch.testing.assert_close(last, outputs, rtol=1e-4, atol=1e-5)


def test_biases_start_at_zero_and_weights_do_not(case, seeded):
    name, shape = case
    network = seeded(name, shape, 3)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert layer.weight.std() > 0
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            assert (layer.bias == 0).all()
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()
            assert (layer.bias == 0).all()


def test_a_captured_graph_has_no_branch_on_data(case, seeded):
    """Tracing runs the forward pass on values nobody knows: a branch on a tensor raises."""
    name, shape = case
    graph = torch.fx.symbolic_trace(seeded(name, shape, 3).eval())
    x = torch.rand(2, *shape)
    with torch.no_grad():
        assert graph(x).shape == (2, 3)


@pytest.mark.parametrize("name", ["mlp", "lenet5", "wrn-10-1"])
def test_compiles_as_one_graph_under_autocast(name, seeded):
    network, x = seeded(name, SHAPES[name], 3), torch.rand(4, *SHAPES[name])
    compiled = torch.compile(network, backend="eager", fullgraph=True, dynamic=False)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), network(x))


@pytest.mark.parametrize(
    "name", [name for name, shape in SHAPES.items() if "mlp" not in name and name != "linear"]
)
def test_convolutions_refuse_vectors(name):
    with pytest.raises(InputError, match=r"takes images \(C, H, W\), the inputs are vectors of 20 numbers"):
        networks.build(name, (20,), 3)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((20,), "mlp"),
        ((1, 28, 28), "lenet5"),
        ((1, 224, 224), "lenet5"),
        ((3, 31, 40), "lenet5"),
        ((3, 32, 32), "wrn-28-2"),
        ((3, 63, 200), "wrn-28-2"),
        ((3, 64, 64), "resnet18"),
        ((3, 3, 9), "mlp"),
    ],
)
def test_auto(shape, name, n_parameters):
    assert networks.auto_name(shape) == name
    side = 0 if len(shape) == 1 else min(shape[1:])
    assert networks.auto_name(shape, "cpu") == ("small-cnn" if side >= 32 else name)
    assert n_parameters("auto", shape, 5) == n_parameters(name, shape, 5)


def test_every_listed_name_builds():
    concrete = {
        "mlp-H1-H2-...": "mlp-8-4",
        "wrn-D-K": "wrn-10-1",
        "deeplab-ENCODER": "deeplab-resnet18",
    }
    with torch.device("meta"):
        for name, entry in networks.NETWORKS.items():
            head = networks.build(concrete.get(name, name), (3, 32, 32), 4).head
            assert (head.out_channels if isinstance(head, nn.Conv2d) else head.out_features) == 4
            assert "\n" not in entry.description


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet19", "resnet18"),
        ("lenet", "lenet5"),
        ("wrn-28", "wrn-D-K"),
        ("mlp-", "mlp"),
        ("resnet32-cifar", "resnet32"),
    ],
)
def test_unknown_name(name, near):
    with pytest.raises(UnknownNameError, match=f"unknown network '{name}'; did you mean .*'{near}"):
        networks.build(name, (3, 32, 32), 4)


@pytest.mark.parametrize(
    ("name", "shape", "n_outputs", "message"),
    [
        ("mlp", (5,), 0, "n_outputs must be at least 1"),
        ("mlp", (5,), 2.5, "n_outputs must be an integer"),
        ("mlp", (), 2, r"shape \(d,\) or \(C, H, W\)"),
        ("mlp", (5, 5), 2, r"got \(5, 5\)"),
        ("mlp", (0,), 2, r"got \(0,\)"),
        ("mlp-0", (5,), 2, "at least one unit"),
        ("lenet5", (1, 3, 28), 2, "at least 4 x 4, got 3 x 28"),
        ("cnn9", (1, 28, 3), 2, "at least 4 x 4, got 28 x 3"),
        ("wrn-27-2", (3, 32, 32), 2, "6n \\+ 4"),
        ("wrn-28-0", (3, 32, 32), 2, "at least 1"),
    ],
)
def test_refusals(name, shape, n_outputs, message):
    with pytest.raises(InputError, match=message):
        networks.build(name, shape, n_outputs)


def test_find_head_in_other_networks():
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 6))
            self.classifier = nn.Linear(6, 3)
            self.auxiliary = nn.Linear(6, 5)

    other = Other()
    assert networks.find_head(other, 3) is other.classifier
    assert networks.find_head(other, 6) is other.features[1]
    dense = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3))
    assert networks.find_head(dense, 4) is dense[1]
    other.head = nn.Sequential(nn.Linear(6, 3))
    assert networks.find_head(other, 3) is other.head[0]
    with pytest.raises(InputError, match=r"no linear layer or 1x1 convolution of 8 outputs"):
        networks.find_head(other, 8)
