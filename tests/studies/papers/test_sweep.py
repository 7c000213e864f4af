import numpy as np
import pytest

from noisegate.errors import InputError
from noisegate.reporting.plots import panels
from noisegate.studies.papers.sweep import sweep

SERIES = {"LS": {0.2: [0.5, 0.7], 0.1: [0.4, 0.4], 0.3: []}, "FC": {0.1: [0.3]}, "BC": {}}


@pytest.fixture
def ax():
    return panels(1)[1][0]


def test_lines_are_means_in_order_of_x(ax):
    sweep(ax, SERIES, xlabel="alpha", ylabel="accuracy")
    lines = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
    assert list(lines) == ["LS", "FC"]
    np.testing.assert_allclose(lines["LS"], [[0.1, 0.4], [0.2, 0.6]])
    np.testing.assert_allclose(lines["FC"], [[0.1, 0.3]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("alpha", "accuracy")


def test_bands_are_one_sample_deviation_wide(ax):
    sweep(ax, SERIES, xlabel="alpha", ylabel="accuracy")
    band = ax.collections[0].get_paths()[0].vertices
    at = band[np.isclose(band[:, 0], 0.2), 1]
    assert (at.min(), at.max()) == pytest.approx((0.6 - np.sqrt(0.02), 0.6 + np.sqrt(0.02)))
    flat = band[np.isclose(band[:, 0], 0.1), 1]
    assert np.ptp(flat) == pytest.approx(0)


def test_references_are_levels(ax):
    sweep(ax, SERIES, xlabel="x", ylabel="y", references={"CE": [0.2, 0.4], "none": []})
    level = next(line for line in ax.get_lines() if line.get_label() == "CE")
    assert level.get_ydata() == pytest.approx([0.3, 0.3])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["LS", "FC", "CE"]


def test_styles_and_scale(ax):
    own = {"LS": {"color": "#123456", "linestyle": ":"}}
    sweep(ax, SERIES, xlabel="x", ylabel="y", log=True, percent=True, styles=own)
    assert ax.get_xscale() == "log"
    assert ax.get_lines()[0].get_color() == "#123456"
    assert ax.yaxis.get_major_formatter()(0.5).endswith("%")


def test_nothing_to_draw(ax):
    with pytest.raises(InputError, match="no finished runs"):
        sweep(ax, {"LS": {0.1: []}}, xlabel="x", ylabel="y")
    with pytest.raises(InputError, match="positive numbers"):
        sweep(ax, {"LS": {0.0: [1.0]}}, xlabel="x", ylabel="y", log=True)
