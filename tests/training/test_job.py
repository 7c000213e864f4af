import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import InputError
from noisegate.training.job import input_statistics


def images(n=24, size=8, channels=3, dtype=np.uint8):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, channels, size, size)).astype(dtype)
    return Dataset("images", Split(x, np.arange(n) % 2), classes=("a", "b"))


def test_features_are_standardised_by_the_training_rows(data, job_for):
    network = job_for(data).network(3)
    prepared = network.prepare(torch.from_numpy(data.train.x))
    torch.testing.assert_close(prepared.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(prepared.std(0, unbiased=False), torch.ones(2))


def test_pixels_are_standardised_per_channel(job_for):
    data = images()
    prepared = job_for(data, network="lenet5").network(3).prepare(torch.from_numpy(data.train.x))
    torch.testing.assert_close(prepared.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(prepared.std((0, 2, 3), unbiased=False), torch.ones(3))


def test_without_normalisation_pixels_lie_between_zero_and_one(job_for):
    data = images()
    job = job_for(data, ng.Recipe(epochs=1, normalize="none"), network="lenet5")
    prepared = job.network(3).prepare(torch.from_numpy(data.train.x))
    torch.testing.assert_close(prepared, torch.from_numpy(data.train.x).float() / 255)


def test_features_far_from_zero_keep_their_digits(job_for):
    x = 1.7e9 + np.arange(50.0)[:, None] * np.array([[1.0, 60.0]])
    data = Dataset("time", Split(x, np.arange(50) % 2), classes=("a", "b"))
    prepared = job_for(data).network(2).prepare(torch.from_numpy(x))
    expected = (x - x.mean(0)) / x.std(0)
    torch.testing.assert_close(prepared, torch.from_numpy(expected).float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
def test_a_constant_feature_does_not_explode(value):
    _, std = input_statistics(np.full((1000, 1), value), "auto")
    assert std.item() == 1.0


def test_images_are_cropped_in_training_and_centred_in_prediction(job_for):
    data = images(size=8)
    job = job_for(data, ng.Recipe(epochs=1, crop=2, crop_to=6, flip=True), network="lenet5")
    x = torch.from_numpy(data.train.x)
    assert job.input_shape == (3, 6, 6)
    assert job.augment(x).shape == (24, 3, 6, 6)
    network = job.network(4)
    torch.testing.assert_close(network(x), network(x[:, :, 1:7, 1:7]))


def test_vectors_are_not_augmented(data, job_for):
    x = torch.from_numpy(data.train.x)
    assert job_for(data, ng.Recipe(epochs=1, crop=2, flip=True)).augment(x) is x


def test_a_users_own_network_is_built_for_the_shape_and_the_objective(data, job_for):
    asked = []

    def factory(shape, n_outputs):
        asked.append((shape, n_outputs))
        layer = nn.Linear(shape[0], n_outputs)
        nn.init.zeros_(layer.weight)
        return layer

    network = job_for(data, network=factory).network(ng.LogisticNormal(3))
    assert asked == [((2,), 6)]
    # A head that starts at zero would never learn its scale: the objective has initialised it.
    assert network.network.weight[3:].abs().sum() > 0
    assert network.spec["network"] is None


def test_a_factory_that_returns_something_else_is_refused(data, job_for):
    with pytest.raises(InputError, match=r"must return a torch.nn.Module, got int"):
        job_for(data, network=lambda shape, n: 3).network(3)


def test_predictions_are_in_order_and_leave_the_mode_alone(data, job_for):
    job = job_for(data)
    objective = ng.CrossEntropy(3)
    network = job.network(objective)
    network.train()
    probs = job.predict(network, objective)
    assert network.training
    expected = torch.softmax(network.eval()(torch.from_numpy(data.train.x)), 1)
    torch.testing.assert_close(probs, expected)
    assert job.predict(network, objective, job.validation).shape == (40, 3)


def test_state_per_example_has_a_row_for_each(data, job_for):
    state = job_for(data).per_example(4, fill=0.5)
    assert state.shape == (60, 4)
    assert bool((state == 0.5).all())


class Noted(nn.Linear):
    """Says where something of it lies in memory."""

    def extra_repr(self):
        return f"note={object()!r}"


def test_what_a_factory_builds_is_told_from_another(data, job_for):
    assert job_for(data).layers() is None
    narrow, wide = (job_for(data, network=lambda shape, n, h=h: Noted(*shape, h)).layers() for h in (3, 4))
    assert narrow != wide
    again = job_for(data, network=lambda shape, n: Noted(*shape, 3))
    torch.manual_seed(0)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert again.layers() == narrow
    assert torch.rand(1) == drawn
    assert job_for(data, network=lambda shape, n: 3).layers() is None


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_statistics_of_parts_are_those_of_the_whole(monkeypatch, dtype):
    x = images(n=50, dtype=dtype).train.x + (0 if dtype == np.uint8 else np.float32(1e5))
    scale = 255 if dtype == np.uint8 else 1
    for numbers in (1, 700, 10**9):
        monkeypatch.setattr("noisegate.training.job.MOMENT_NUMBERS", numbers)
        mean, std = input_statistics(x, "auto")
        expected = x.astype(np.float64) / scale
        np.testing.assert_allclose(mean.flatten().numpy(), expected.mean((0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(std.flatten().numpy(), expected.std((0, 2, 3)), rtol=1e-9)


def test_statistics_of_many_images_take_little_memory():
    x = np.zeros((4000, 3, 64, 64), np.uint8)
    tracemalloc.start()
    try:
        input_statistics(x, "auto")
        assert tracemalloc.get_traced_memory()[1] < 4 * 64 * 2**20  # a whole copy in float64 is 393 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12])
def test_the_unit_of_a_feature_does_not_matter(scale):
    x = np.random.default_rng(0).normal(1.0, 2.0, (100, 1))
    _, std = input_statistics(scale * x, "auto")
    assert std.item() == pytest.approx(scale * x.std())


@pytest.mark.parametrize("far", [1e6, 1e12, 1e17])
def test_features_far_from_zero_have_their_own_scale(far):
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 1000, (2000, 1)) * 16.0  # float64 holds them all, also at 1e17
    mean, std = input_statistics(far + steps, "auto")
    assert std.item() == pytest.approx(steps.std(), rel=1e-9)
    assert mean.item() - far == pytest.approx(steps.mean(), abs=16)
    # What is constant stays so, however far it is.
    for constant in (far + 0.1, np.float32(0.1)):
        assert input_statistics(np.full((500, 1), constant), "auto")[1].item() == 1.0
        assert input_statistics(np.full((50, 1, 6, 6), constant, np.float32), "auto")[1].item() == 1.0


def test_a_module_is_no_network(data, job_for):
    with pytest.raises(InputError, match="got a module itself"):
        job_for(data, network=torch.nn.Linear(2, 3))
