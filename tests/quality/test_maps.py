"""The quality of masks: cleanlab's scores where those work, void, regions inside of eroded masks, overlays."""

import numpy as np
import pytest

from noisegate.errors import InputError
from noisegate.quality.maps import inner, map_quality, map_regions, overlay, pixel_quality, rank_maps

VOID = -100
K = 4


def problem(n=5, side=20, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.kron(rng.integers(0, K, (n, 2, 2)), np.ones((side // 2, side // 2), int))
    logits = rng.normal(size=(n, K, side, side)) + 3 * np.eye(K)[labels].transpose(0, 3, 1, 2)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return probs, labels


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_the_scores_are_cleanlabs_where_there_is_no_void(temperature):
    from cleanlab.segmentation.rank import get_label_quality_scores

    probs, labels = problem()
    expected, pixels = get_label_quality_scores(labels, probs, verbose=False, temperature=temperature)
    np.testing.assert_allclose(rank_maps(probs, labels, temperature), expected, rtol=1e-10)
    for image in range(len(labels)):
        np.testing.assert_allclose(pixel_quality(probs[image], labels[image]), pixels[image])


def test_void_does_not_count():
    probs, labels = problem()
    part = labels.copy()
    part[:, :5] = VOID
    for p, y, whole in zip(probs, part, labels, strict=True):
        assert map_quality(p, y) == pytest.approx(map_quality(p[:, 5:], whole[5:]))
        assert np.isnan(pixel_quality(p, y)[:5]).all()
    assert map_quality(probs[0], np.full((20, 20), VOID)) == 1.0


def test_limits_of_the_temperature():
    probs, labels = problem()
    q = pixel_quality(probs[0], labels[0])
    assert map_quality(probs[0], labels[0], 1e-6) == pytest.approx(q.min())
    assert map_quality(probs[0], labels[0], 1e6) == pytest.approx(q.mean(), rel=1e-4)


def scene():
    """Class 0 with a square of class 1; probabilities say that the square is of class 2."""
    labels = np.zeros((40, 50), np.int8)
    labels[10:30, 15:35] = 1
    truth = labels.copy()
    truth[labels == 1] = 2
    probs = np.full((3, 40, 50), 0.05)
    np.put_along_axis(probs, truth[None].astype(int), 0.9, 0)
    return probs, labels


def test_a_wrong_segment_is_one_region_found_inside_and_grown_back_to_its_rim():
    probs, labels = scene()
    (region,) = map_regions(probs, labels, margin=2)
    assert (region.given, region.suggested) == (1, 2)
    assert region.box == (10, 15, 30, 35)
    assert region.pixels == 20 * 20
    assert region.mask.all()
    assert region.quality == pytest.approx(0.05)
    assert region.weight == pytest.approx(400 * 0.95)
    # It needs enough pixels inside, here 16 x 16.
    assert map_regions(probs, labels, margin=2, smallest=256)
    assert map_regions(probs, labels, margin=2, smallest=257) == []


def test_a_region_grows_only_where_the_network_says_the_same_class():
    probs, labels = scene()
    # In the lower half it says the given class, above and left of row 12 another one.
    probs[:, 20:] = 0.05
    np.put_along_axis(probs[:, 20:], labels[None, 20:].astype(int), 0.9, 0)
    probs[:, 10:12, 15:25] = np.array([0.9, 0.05, 0.05])[:, None, None]
    (region,) = map_regions(probs, labels, margin=2)
    expected = np.zeros((40, 50), bool)
    expected[10:20, 15:35] = True
    expected[10:12, 15:25] = False
    found = np.zeros((40, 50), bool)
    top, left, bottom, right = region.box
    found[top:bottom, left:right] = region.mask
    assert np.array_equal(found, expected)
    # By as many pixels as were left out, though it is unsure of the same class further away.
    unsure, labels = scene()
    unsure[2, 10:30, 15:35] = 0.4
    unsure[2, 17:23, 22:28] = 0.9
    (near,) = map_regions(unsure, labels, margin=2)
    assert near.box == (15, 20, 25, 30)


def test_thin_lines_at_boundaries_are_no_regions():
    _, labels = scene()
    right = np.full((3, 40, 50), 0.05)
    moved = np.zeros((40, 50), int)
    moved[11:31, 16:36] = 1  # the network draws the square a pixel further
    np.put_along_axis(right, moved[None], 0.9, 0)
    assert map_regions(right, labels, margin=2) == []
    assert map_regions(right, labels, margin=0, smallest=5)


def test_unsure_void_and_small_regions_are_left_out():
    probs, labels = scene()
    assert map_regions(probs, labels, threshold=0.95) == []
    assert map_regions(probs, labels, smallest=257) == []
    part = labels.copy()
    part[:, :25] = VOID
    (region,) = map_regions(probs, part, margin=2)
    assert region.box[1] == 25
    two = labels.copy()
    two[18:22] = 0  # cuts the square in two
    assert [r.pixels for r in map_regions(probs, two, margin=0)][:2] == [160, 160]


def test_regions_with_more_wrong_pixels_come_first():
    probs, labels = problem(1, 40)
    probs, labels = probs[0], labels[0].copy()
    wrong = labels.copy()
    wrong[2:12, 2:12] = (labels[2:12, 2:12] + 1) % K
    wrong[25:39, 25:39] = (labels[25:39, 25:39] + 1) % K
    found = map_regions(probs, wrong, margin=1, threshold=0.3, smallest=10)
    assert [r.weight for r in found] == sorted((r.weight for r in found), reverse=True)


def test_inner_pixels_by_hand():
    rng = np.random.default_rng(0)
    labels = np.kron(rng.integers(0, 3, (4, 5)), np.ones((4, 4), int))
    labels[0, 0] = VOID
    for margin in (0, 1, 3):
        found = inner(labels, margin)
        for row, column in np.ndindex(labels.shape):
            window = labels[
                max(0, row - margin) : row + margin + 1, max(0, column - margin) : column + margin + 1
            ]
            assert found[row, column] == (len(np.unique(window)) == 1)


def test_an_overlay_shows_the_suggested_class_in_a_red_frame():
    probs, labels = scene()
    regions = map_regions(probs, labels)
    colours = np.array([[0, 0, 0], [0, 255, 0], [0, 0, 255]])
    picture = overlay(np.full((3, 40, 50), 100, np.uint8), labels, regions, colours)
    assert picture.shape == (40, 50, 3)
    assert picture[10, 15].tolist() == [255, 0, 0]
    assert picture[20, 25, 2] > 150
    assert picture[9, 14].tolist() == [65, 65, 65]  # the given class, around the region
    grey = overlay(np.full((1, 40, 50), 100, np.uint8), labels, [], colours)
    assert grey.shape == (40, 50, 3)


def test_what_does_not_fit_is_refused():
    probs, labels = scene()
    with pytest.raises(InputError, match=r"expected probabilities \(K, H, W\)"):
        map_quality(probs, labels[1:])
    with pytest.raises(InputError, match="labels must lie in"):
        map_quality(probs, labels + 2)
    with pytest.raises(InputError, match="temperature must be positive"):
        map_quality(probs, labels, 0)
