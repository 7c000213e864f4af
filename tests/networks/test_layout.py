"""The layout of convolutions: faster, and refused by nobody."""

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct
from noisegate.networks.layout import channels_last_
from noisegate.networks.prepare import Prepared
from noisegate.training.job import make_job
from noisegate.training.phase import Phase

SHAPE = (3, 8, 8)


class Viewing(nn.Module):
    """As many people write it: it counts on rows that lie in memory as they are written."""

    def __init__(self, input_shape, n_outputs, only_in_training=False):
        super().__init__()
        self.conv = nn.Conv2d(input_shape[0], 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * (input_shape[1] - 2) * (input_shape[2] - 2), n_outputs)
        self.only_in_training = only_in_training

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        flat = x.flatten(1) if self.only_in_training and not self.training else x.view(len(x), -1)
        return self.fc(flat)


def flattening(input_shape, n_outputs):
    size = 4 * (input_shape[1] - 2) * (input_shape[2] - 2)
    return nn.Sequential(nn.Conv2d(input_shape[0], 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(size, n_outputs))


def prepared(network, name=None):
    return Prepared(
        network, torch.zeros(3, 1, 1), torch.ones(3, 1, 1), {"network": name, "input_shape": list(SHAPE)}
    )


def is_channels_last(module):
    """Whether the weights are laid out so; 1 x 1 kernels and single channels are both ways at once."""
    weights = [p for p in module.parameters() if p.dim() == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    assert weights
    found = {w.is_contiguous(memory_format=torch.channels_last) for w in weights}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("name", ["lenet5", "cnn9", "resnet18", "resnet20", "resnet-v2-50", "wrn-10-1"])
def test_our_networks_compute_the_same(name):
    network = prepared(ng.networks.build(name, SHAPE, 5), name).eval()
    x = torch.rand(4, *SHAPE)
    wanted = network(x)
    channels_last_(network)
    assert is_channels_last(network)
    torch.testing.assert_close(network(x), wanted, rtol=1e-4, atol=1e-5)
    network.train()(x).sum().backward()
    assert all(p.grad.stride() == p.stride() for p in network.parameters())


@pytest.mark.parametrize("only_in_training", [False, True])
def test_a_network_that_counts_on_the_usual_layout_keeps_it(only_in_training):
    network = prepared(Viewing(SHAPE, 3, only_in_training))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    drawn = torch.get_rng_state()
    channels_last_(network)
    assert not is_channels_last(network)
    assert torch.equal(torch.get_rng_state(), drawn)
    # The trial leaves no trace: not in the statistics, either.
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())


def test_a_users_network_that_can_take_it_gets_it():
    network = prepared(flattening(SHAPE, 3))
    channels_last_(network)
    assert is_channels_last(network)


def test_networks_without_convolutions_are_left_alone():
    network = prepared(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)))
    channels_last_(network)
    assert network(torch.rand(2, *SHAPE)).shape == (2, 3)


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (60, *SHAPE), dtype=np.uint8), rng.integers(0, 3, 60)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", [Viewing, flattening])
def test_users_networks_train(images, network, precision):
    recipe = {"epochs": 2, "batch_size": 20, "precision": precision}
    fitted = ng.train(images, "ln", network, recipe, device="cpu")
    assert is_channels_last(fitted.network) is (network is flattening)
    assert np.isfinite(fitted.predict_proba(images[0])).all()


class WithMore(Method):
    """A user's method whose module has a convolution of its own."""

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        module = Direct(network, objective)
        module.more = self.more = nn.Conv2d(3, 2, 3)
        yield Phase(module, job.recipe)
        return ng.Fitted(network, objective)


def test_what_a_users_method_brings_is_left_alone(images):
    method = WithMore()
    fitted = ng.train(images, method, "lenet5", {"epochs": 1}, device="cpu")
    assert is_channels_last(fitted.network)
    assert not is_channels_last(method.more)


@pytest.mark.parametrize("network", ["lenet5", "wrn-10-1", Viewing, flattening])
def test_a_stored_model_predicts_the_same_bits(images, network, tmp_path):
    fitted = ng.train(images, "ce", network, {"epochs": 1, "batch_size": 20}, device="cpu")
    fitted.save(tmp_path)
    loaded = ng.Fitted.load(tmp_path, network=None if isinstance(network, str) else network)
    assert np.array_equal(loaded.predict_proba(images[0]), fitted.predict_proba(images[0]))


def test_all_parts_of_causalnl_get_it(images):
    data = ng.data.from_arrays(*images)
    job = make_job(data, "lenet5", ng.Recipe(epochs=1), 0, torch.device("cpu"))
    module = next(ng.methods.get("causalnl", noise_rate=0.2).phases(job)).module
    kinds = {type(part) for part in module.modules()}
    assert {nn.Conv2d, nn.ConvTranspose2d} <= kinds
    channels_last_(module)
    assert is_channels_last(module)


def test_a_users_classifier_inside_of_it_keeps_its_own(images):
    data = ng.data.from_arrays(*images)
    job = make_job(data, Viewing, ng.Recipe(epochs=1), 0, torch.device("cpu"))
    module = next(ng.methods.get("causalnl", noise_rate=0.2).phases(job)).module
    channels_last_(module)
    parts = [part for part in module.modules() if isinstance(part, Prepared)]
    assert parts
    assert not any(map(is_channels_last, parts))
    assert {
        c.weight.is_contiguous(memory_format=torch.channels_last)
        for c in module.modules()
        if isinstance(c, nn.ConvTranspose2d)
    } == {True}
    assert ng.train(data, "causalnl", Viewing, {"epochs": 1, "batch_size": 20}, device="cpu").history
