import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.errors import InputError, MissingDataError
from noisegate.studies import probes
from noisegate.studies.probes.prelogits import penultimate, plane

CLASSES = (2, 5, 7)


@pytest.fixture(scope="module")
def case():
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.3, include_self=False), seed=0)
    fitted = ng.train(data, "ls", "mlp-16", {"epochs": 3}, seed=0, device="cpu")
    return data, fitted, probes.get("prelogits")(fitted, data, classes=CLASSES)


def test_the_rows_are_those_of_the_three_classes(case):
    data, _, found = case
    train = data.train
    rows = np.isin(train.y, CLASSES) | np.isin(train.clean, CLASSES)
    assert (found["prelogits_given"] == train.y[rows]).all()
    assert (found["prelogits_clean"] == train.clean[rows]).all()
    assert found["prelogits"].shape == (rows.sum(), 2)


def test_distances_in_the_plane_are_those_of_an_orthogonal_projection(case):
    # Whatever the basis: a point and its projection by least squares lie equally far from the templates' images.
    data, fitted, found = case
    train = data.train
    rows = np.isin(train.y, CLASSES) | np.isin(train.clean, CLASSES)
    network = fitted.network.network
    with torch.no_grad():
        inputs = fitted.network.prepare(torch.from_numpy(train.x[rows]))
        hidden = network.body(inputs).double().numpy()
    templates = network.head.weight.detach().double().numpy()[list(CLASSES)]
    span = (templates[1:] - templates[0]).T
    weights = np.linalg.lstsq(span, (hidden - templates[0]).T, rcond=None)[0]
    projected = templates[0] + (span @ weights).T
    expected = np.linalg.norm(projected[:, None] - templates, axis=2)
    seen = np.linalg.norm(found["prelogits"][:, None] - found["prelogits_templates"], axis=2)
    np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-4)


def test_the_first_template_is_up_and_the_second_to_the_left(case):
    _, _, found = case
    first, second, third = found["prelogits_templates"]
    assert first[0] == pytest.approx(0, abs=1e-6)
    assert first[1] > 0
    assert second[0] < third[0]
    assert found["prelogits_templates"].mean(0) == pytest.approx([0, 0], abs=1e-6)


def test_penultimate_activations_give_the_outputs(case):
    data, fitted, _ = case
    activations, weights = penultimate(fitted, data.test.x)
    bias = fitted.network.network.head.bias.detach().double().numpy()
    with torch.no_grad():
        outputs = fitted.network(torch.from_numpy(data.test.x)).numpy()
    np.testing.assert_allclose(activations @ weights.T + bias, outputs, rtol=1e-4, atol=1e-4)
    assert not fitted.network.network.head._forward_pre_hooks


def test_a_convolutional_network_too():
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    data = ng.data.from_arrays(images, np.arange(40) % 4).corrupt(ng.noise.Symmetric(0.3), seed=0)
    fitted = ng.train(data, "ce", "resnet20", {"epochs": 1}, seed=0, device="cpu")
    found = probes.get("prelogits")(fitted, data)
    assert np.isfinite(found["prelogits"]).all()
    assert len(found["prelogits"]) >= 30


@pytest.mark.parametrize("points", [np.zeros((3, 4)), np.outer([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])])
def test_points_on_a_line_span_no_plane(points):
    with pytest.raises(InputError, match="span no plane"):
        plane(points)


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 1), (0, 1, 10), (-1, 0, 1)])
def test_classes_that_are_not_three(case, classes):
    data, fitted, _ = case
    with pytest.raises(InputError, match="three classes in 0..9"):
        probes.get("prelogits")(fitted, data, classes=classes)


def test_it_needs_the_true_labels(case):
    data, fitted, _ = case
    unknown = Dataset("digits", Split(data.train.x, data.train.y), data.test, classes=data.classes)
    with pytest.raises(MissingDataError, match="true labels"):
        probes.get("prelogits")(fitted, unknown)
