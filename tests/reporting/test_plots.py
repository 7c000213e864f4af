"""Plots: what is drawn, without pyplot and without global state."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve

from noisegate.errors import InputError
from noisegate.evaluation.metrics import ece
from noisegate.reporting import plots

DESIGNED = (
    "ce ls fc bc gce bi-tempered nan bootstrap het het-tau het-full ln forward backward reweight t-revision "
    "co-teaching decoupling mentornet mixup distillation causalnl"
)


@pytest.fixture(autouse=True)
def _settings_untouched():
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before


def half_plane(points):
    """Class 1 to the right of x = 0.25, surer with the distance."""
    right = 1 / (1 + np.exp(-8 * (points[:, 0] - 0.25)))
    return np.stack([1 - right, right], 1)


def image_size(content):
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_pyplot_is_not_imported():
    code = "import sys, noisegate.reporting.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_no_two_methods_look_alike_and_every_look_is_fixed():
    looks = [tuple(plots.method_style(name).values()) for name in DESIGNED.split()]
    assert len(set(looks)) == len(looks) == 22
    assert plots.method_style("ln") == {"color": "#0072B2", "linestyle": "-"}
    assert plots.method_style("my own") == plots.method_style("my own")


def test_png_has_the_size_asked_for_and_is_reproducible():
    figure, axes = plots.panels(3, columns=2, size=(2, 1))
    assert isinstance(figure, Figure)
    assert len(axes) == 3
    content = plots.png(figure, dpi=100)
    assert image_size(content) == (400, 200)
    assert plots.png(figure, dpi=100) == content


def test_learning_curves_draw_the_numbers():
    curves = {"ce": [0.2, 0.9, 0.7], "ln": [0.1, 0.8, 0.85]}
    figure = plots.learning_curves(curves, ylabel="accuracy", title="Both", names={"ce": "cross-entropy"})
    (ax,) = figure.axes
    for line, (method, values) in zip(ax.lines, curves.items(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
        np.testing.assert_array_equal(line.get_ydata(), values)
        assert to_hex(line.get_color()).upper() == plots.method_style(method)["color"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["cross-entropy", "ln"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "accuracy")
    figure.canvas.draw()
    assert all(label.get_text().endswith("%") for label in ax.get_yticklabels())


@pytest.mark.parametrize("curves", [{}, {"ce": []}])
def test_learning_curves_need_something_to_draw(curves):
    with pytest.raises(InputError, match="at least one"):
        plots.learning_curves(curves, ylabel="accuracy")


def test_the_boundary_is_where_the_class_changes():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 2))
    y = rng.integers(2, size=60)
    wrong = y != (x[:, 0] > 0.25)
    figure = plots.decision_boundary(half_plane, x, y, wrong=wrong, resolution=81)
    (ax,) = figure.axes
    (contour,) = [c for c in ax.collections if hasattr(c, "levels")]
    (path,) = contour.get_paths()
    np.testing.assert_allclose(path.vertices[:, 0], 0.25, atol=1e-3)
    drawn = {c.get_label(): len(c.get_offsets()) for c in ax.collections if not hasattr(c, "levels")}
    expected = {
        "given 0": int(((y == 0) & ~wrong).sum()),
        "given 0, wrongly": int(((y == 0) & wrong).sum()),
        "given 1": int(((y == 1) & ~wrong).sum()),
        "given 1, wrongly": int(((y == 1) & wrong).sum()),
    }
    assert drawn == expected
    background = ax.images[0].get_array()
    # Sure of class 0 at the left: nearer to its colour than to that of class 1.
    distances = [np.abs(background[40, 0] - to_rgb(color)).sum() for color in plots.CLASS_COLORS[:2]]
    assert distances[0] < distances[1]


def test_three_classes_have_three_regions_and_a_sure_classifier_has_no_line():
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 2.0]])

    def nearest(points):
        scores = np.exp(-((points[:, None] - centres) ** 2).sum(2))
        return scores / scores.sum(1, keepdims=True)

    figure = plots.decision_boundary(nearest, centres, np.arange(3), classes=["a", "b", "c"], resolution=30)
    (ax,) = figure.axes
    assert sum(hasattr(c, "levels") for c in ax.collections) == 3
    assert {"given a", "given b", "given c"} <= {c.get_label() for c in ax.collections}

    def sure(points):
        return np.tile([0.9, 0.1], (len(points), 1))

    (ax,) = plots.decision_boundary(sure, centres, np.zeros(3, int), resolution=5).axes
    assert not any(hasattr(c, "levels") for c in ax.collections)


def test_a_boundary_needs_the_plane():
    with pytest.raises(InputError, match=r"expected x of shape \(N, 2\), got \(4, 3\)"):
        plots.decision_boundary(half_plane, np.zeros((4, 3)), np.zeros(4))


def test_reliability_agrees_with_scikit_learn_and_ece():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([0.5, 0.5, 0.5], 400)
    y = np.array([rng.choice(3, p=p**2 / (p**2).sum()) for p in probs])
    figure = plots.reliability(probs, y, n_bins=10, title="ln")
    (ax,) = figure.axes
    right = probs.argmax(1) == y
    accuracy, confidence = calibration_curve(right, probs.max(1), n_bins=10)
    dots = ax.lines[1]
    np.testing.assert_allclose(dots.get_xdata(), confidence)
    np.testing.assert_allclose(dots.get_ydata(), accuracy)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], accuracy)
    assert ax.get_title(loc="left") == f"ln: ECE {ece(probs, y, 10):.1%}"


def test_reliability_with_certain_predictions():
    (ax,) = plots.reliability(np.eye(2)[[0, 1, 1]], np.array([0, 1, 0])).axes
    (bar,) = ax.patches
    assert bar.get_height() == pytest.approx(2 / 3)
    assert bar.get_x() + bar.get_width() == pytest.approx(1)


def test_heat_map_writes_shares_as_percent_and_counts_as_they_are():
    (ax,) = plots.heat_map([[0.8, 0.2], [0.05, 0.95]], classes=["cat", "dog"], title="T").axes
    assert [text.get_text() for text in ax.texts] == ["80", "20", "5", "95"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "dog"]
    assert ax.get_title(loc="left") == "T (%)"
    (ax,) = plots.heat_map(np.array([[3, 1], [0, 4]]), title="n").axes
    assert [text.get_text() for text in ax.texts] == ["3", "1", "0", "4"]
    assert ax.get_title(loc="left") == "n"
    (ax,) = plots.heat_map(np.eye(100)).axes
    assert not ax.texts
    assert len(ax.get_xticks()) <= 25
    with pytest.raises(InputError, match="square"):
        plots.heat_map(np.zeros((2, 3)))


def test_image_grid_shows_every_image_with_its_caption():
    pixels = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4)
    figure = plots.image_grid(
        pixels, [f"n {i}" for i in range(5)], right=[True, False, None, True, True], columns=3
    )
    assert len(figure.axes) == 5
    for i, ax in enumerate(figure.axes):
        np.testing.assert_array_equal(ax.images[0].get_array(), pixels[i])
        assert ax.get_xlabel() == f"n {i}"
    inks = [ax.xaxis.label.get_color() for ax in figure.axes]
    assert inks == [plots.RIGHT, plots.WRONG, plots.INK, plots.RIGHT, plots.RIGHT]
    colours = np.random.default_rng(0).random((2, 3, 4, 4))
    figure = plots.image_grid(colours)
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), np.moveaxis(colours[1], 0, 2))
    with pytest.raises(InputError, match="expected images"):
        plots.image_grid(np.zeros((2, 4)))


def test_every_plot_draws_into_axes_it_is_given():
    figure, axes = plots.panels(4, columns=2)
    x = np.random.default_rng(0).normal(size=(20, 2))
    y = np.arange(20) % 2
    returned = [
        plots.learning_curves({"ce": [0.5]}, ylabel="accuracy", ax=axes[0]),
        plots.decision_boundary(half_plane, x, y, resolution=10, ax=axes[1]),
        plots.reliability(half_plane(x), y, ax=axes[2]),
        plots.heat_map(np.eye(3), ax=axes[3]),
    ]
    assert all(each is figure for each in returned)
    assert len(figure.axes) == 4
