"""Noise on maps of labels: what changes, where, how much, and that a seed decides it."""

import numpy as np
import pytest

import noisegate as ng
from noisegate.errors import InputError
from noisegate.noise import NOISES, MapBoundaries, MapPatches, MapSegments, build, describe
from noisegate.noise.maps import segments

VOID = -100
KINDS = [
    MapBoundaries("erode"),
    MapBoundaries("dilate"),
    MapBoundaries("displace"),
    MapSegments(0.5, "swap"),
    MapSegments(0.9, "drop"),
    MapSegments(0.9, "shift"),
    MapPatches(0.3),
]


def scene(n=6, side=48):
    """Discs and bars of classes 1 to 3 before class 0, with a strip of void."""
    rows, columns = np.mgrid[:side, :side]
    maps = np.zeros((n, side, side), np.int8)
    for image in range(n):
        maps[image][(rows - 15 - image) ** 2 + (columns - 14) ** 2 < 60] = 1
        maps[image][30:44, 25 + image : 34 + image] = 2
        maps[image][4:12, 32:44] = 3
        maps[image][:, -2:] = VOID
    return maps


@pytest.mark.parametrize("noise", KINDS, ids=repr)
def test_a_seed_decides_labels_stay_in_range_and_void_stays(noise):
    y = scene()
    before = y.copy()
    found = noise.corrupt(y, n_classes=4, seed=1)
    assert np.array_equal(y, before)
    assert found.dtype == y.dtype
    assert np.array_equal(found == VOID, y == VOID)
    assert set(np.unique(found)) <= {VOID, 0, 1, 2, 3}
    assert (found != y).any()
    assert np.array_equal(found, noise.corrupt(y, n_classes=4, seed=1))
    assert not np.array_equal(found, noise.corrupt(y, n_classes=4, seed=2))
    # Image by image: fewer images are the same ones.
    assert np.array_equal(found[:2], noise.corrupt(y[:2], n_classes=4, seed=1))
    again = build(noise.to_dict())
    assert again == noise
    assert again.kind in NOISES


@pytest.mark.parametrize("error", ["erode", "dilate"])
@pytest.mark.parametrize("width", [1.0, 3.0])
def test_boundaries_move_by_their_width_and_no_further(error, width):
    from scipy import ndimage

    y = scene()
    found = MapBoundaries(error, width=width, share=1.0).corrupt(y, n_classes=4, seed=0)
    for clean, noisy in zip(y, found, strict=True):
        changed = clean != noisy
        distance = np.zeros(clean.shape)
        for label in range(4):
            # What gave way: a segment that is eroded, or what lies beside one that is dilated.
            inside = clean == label
            distance[inside] = ndimage.distance_transform_edt(inside)[inside]
        assert distance[changed].max() <= width
    if error == "dilate":
        assert (found > 0).sum() > (y > 0).sum()
        assert ((y > 0) <= (found > 0)).all()


def test_a_displacement_has_the_given_width():
    from noisegate.noise.maps import displaced_places

    rows, columns = displaced_places((200, 150), 3.0, 10.0, np.random.default_rng(0))
    inside = (slice(20, -20), slice(20, -20))
    down = (rows - np.arange(200)[:, None])[inside].astype(float)
    assert np.sqrt((down**2).mean()) == pytest.approx(3.0, rel=0.15)
    assert np.abs(np.diff(down, axis=0)).max() <= 3  # smooth: neighbours move together
    assert columns.min() >= 0
    assert columns.max() <= 149


def test_whole_segments_are_swapped_by_the_mapping():
    y = scene()
    found = MapSegments(1.0, "swap", mapping={2: 3}).corrupt(y, n_classes=4, seed=0)
    assert (found[y == 2] == 3).all()
    assert np.array_equal(found[y != 2], y[y != 2])
    every = MapSegments(1.0, "swap").corrupt(y, n_classes=4, seed=0)
    assert (every[y != VOID] != y[y != VOID]).all()
    numbers = segments(y[0])
    for number in range(1, numbers.max() + 1):
        assert len(np.unique(every[0][numbers == number])) == 1


def test_the_share_of_swapped_segments_is_the_rate():
    # Four classes; no two neighbours are alike, not even by their corners.
    blocks = (np.indices((30, 30))[0] % 2) * 2 + np.indices((30, 30))[1] % 2
    y = np.kron(blocks, np.ones((5, 5))).astype(np.int8)[None]
    found = MapSegments(0.2, "swap").corrupt(y, n_classes=4, seed=0)
    assert describe(y, found, 4).rate == pytest.approx(0.2, abs=0.05)


def test_a_dropped_segment_takes_what_is_around_it_and_a_shifted_one_moves():
    y = np.zeros((1, 40, 40), np.int8)
    y[0, 10:20, 10:20] = 1
    y[0, 30:, :] = VOID
    dropped = MapSegments(1.0, "drop", smallest=50).corrupt(y, n_classes=2, seed=0)
    assert (dropped[0, 10:20, 10:20] == 0).all()
    shifted = [MapSegments(0.5, "shift", distance=5).corrupt(y, n_classes=2, seed=s)[0] for s in range(20)]
    moved = [s for s in shifted if (s == 1).sum() == 100 and (s[10:20, 10:20] == 1).sum() < 100]
    assert moved
    for each in moved:
        rows, columns = np.nonzero(each == 1)
        assert np.hypot(rows.mean() - 14.5, columns.mean() - 14.5) == pytest.approx(5, abs=1)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_patches_cover_their_share(rate):
    y = np.zeros((600, 64, 64), np.int8)
    found = MapPatches(rate, size=8).corrupt(y, n_classes=111, seed=0)
    # A patch of a random class is right once in K times.
    k = 111
    assert (found != 0).mean() == pytest.approx(rate * (k - 1) / k, rel=0.06)
    edge = (found[:, 0, :] != 0).mean()
    assert edge == pytest.approx(rate * (k - 1) / k, rel=0.2)


def test_the_realised_rate_counts_pixels_with_a_label():
    y = scene()
    data = ng.data.from_arrays(np.zeros((6, 1)), np.arange(6) % 2)
    found = y.copy()
    found[0, 0, :10] = 3
    report = describe(y, found, 4)
    assert report.rate == pytest.approx(10 / (y != VOID).sum())
    with pytest.raises(InputError, match="is for maps of labels"):
        data.corrupt(MapPatches(0.1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MapBoundaries("blur"), "error must be one of"),
        (lambda: MapBoundaries(width=0), "width must be a positive"),
        (lambda: MapSegments(1.5), "rate must lie in"),
        (lambda: MapSegments(0.1, "melt"), "error must be one of"),
        (lambda: MapPatches(1), "below 1"),
        (lambda: MapSegments(1.0, mapping={0: 9}).corrupt(scene(), n_classes=4), "leads to class 9"),
        (lambda: MapPatches(0.1).corrupt(scene() + 5, n_classes=4), "labels must lie in"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()
