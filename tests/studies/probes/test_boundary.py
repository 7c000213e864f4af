"""The probe "boundary": the classifier's own probabilities at known places."""

import numpy as np
import pytest
import torch
from matplotlib.contour import ContourSet
from torch import nn

import noisegate as ng
from noisegate.data import from_arrays
from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.networks.prepare import Prepared
from noisegate.objectives import CrossEntropy
from noisegate.reporting.plots import panels
from noisegate.studies import probes
from noisegate.studies.papers.boundary import boundary_panel


@pytest.fixture
def steep():
    """P(class 1) = sigmoid(3 x - y): it tells the axes apart."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, -1.0]]))
        layer.bias.zero_()
    spec = {"network": None, "input_shape": [2], "n_outputs": 2}
    return Fitted(Prepared(layer, torch.zeros(2), torch.ones(2), spec), CrossEntropy(2))


@pytest.fixture
def data():
    x = np.array([[0.0, -1.0], [1.0, 3.0], [0.5, 0.0], [0.25, 1.0]])
    return from_arrays(x, [0, 1, 0, 1]).with_labels([1, 1, 0, 1])


def test_probabilities_lie_at_their_places(steep, data):
    found = probes.get("boundary")(steep, data, resolution=7)
    x, y, p = (found[f"boundary_{name}"] for name in ("x", "y", "probs"))
    assert p.shape == (7, 7, 2)
    assert p.dtype == np.float32
    # 8 % of the range beyond the points: 0..1 along, -1..3 up.
    np.testing.assert_allclose([x[0], x[-1], y[0], y[-1]], [-0.08, 1.08, -1.32, 3.32], rtol=1e-5)
    for row, column in ((0, 0), (6, 0), (2, 5)):
        expected = 1 / (1 + np.exp(-(3 * x[column] - y[row])))
        np.testing.assert_allclose(p[row, column], [1 - expected, expected], rtol=1e-5)


def test_points_come_with_both_labels(steep, data):
    found = probes.get("boundary")(steep, data, resolution=2)
    np.testing.assert_array_equal(found["boundary_points"], data.train.x)
    assert found["boundary_given"].tolist() == [1, 1, 0, 1]
    assert found["boundary_clean"].tolist() == [0, 1, 0, 1]
    unknown = probes.get("boundary")(steep, from_arrays(data.train.x, [1, 1, 0, 1]), resolution=2)
    assert unknown["boundary_clean"].tolist() == [1, 1, 0, 1]


def test_the_panel_draws_the_line_where_the_classes_meet(steep, data):
    arrays = probes.get("boundary")(steep, data, resolution=61)
    _, (ax,) = panels(1)
    boundary_panel(ax, arrays, "steep")
    (line,) = [c for c in ax.collections if isinstance(c, ContourSet)]
    vertices = line.get_paths()[0].vertices
    np.testing.assert_allclose(3 * vertices[:, 0], vertices[:, 1], atol=0.02)
    labels = ax.get_legend_handles_labels()[1]
    assert sorted(labels) == ["given 0", "given 1", "given 1, wrongly"]


def test_what_is_not_in_the_plane_is_refused(steep, data):
    with pytest.raises(InputError, match=r"points in the plane.*\(64,\)"):
        probes.get("boundary")(steep, ng.data.load("digits"))
    with pytest.raises(InputError, match="at least 2, got 1"):
        probes.get("boundary")(steep, data, resolution=1)
    _, (ax,) = panels(1)
    with pytest.raises(InputError, match=r"CE: no boundary_x .* the probe 'boundary'"):
        boundary_panel(ax, {}, "CE")
