from __future__ import annotations

import numpy as np
import pytest

from noisegate.auditing import nearness


def test_neighbours_are_those_of_brute_force(monkeypatch):
    rng = np.random.default_rng(0)
    x = nearness.normalised(rng.normal(size=(300, 6)))
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
    rows = np.array([7, 3, 250])
    monkeypatch.setattr(nearness, "_BLOCK", 300)  # one row at a time
    found = nearness.nearest(x, rows, 4)
    np.testing.assert_array_equal(found.rows, [3, 7, 250])
    for row, near, similarity in zip(found.rows, found.neighbours, found.similarity, strict=True):
        cosine = x @ x[row]
        cosine[row] = -2
        np.testing.assert_array_equal(near, np.argsort(-cosine)[:4])
        np.testing.assert_allclose(similarity, np.sort(cosine)[::-1][:4], atol=1e-5)


@pytest.mark.parametrize(("n", "k"), [(3, 2), (70, 20), (1000, 5), (9999, 20)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_largest_values_are_those_of_a_full_sort(n, k, ties):
    values = np.random.default_rng(n).normal(size=(20, n)).astype(np.float32)
    if ties:
        values = values.round(1)
    expected = np.argsort(-values, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(nearness._largest(values, k), expected)


def test_no_row_is_its_own_neighbour_and_few_rows_are_enough():
    x = nearness.normalised(np.ones((3, 2)))
    found = nearness.nearest(x, np.arange(3), 5)
    assert found.neighbours.shape == (3, 2)
    assert all(row not in near for row, near in zip(found.rows, found.neighbours, strict=True))


def test_near_duplicates_with_different_labels_are_found_and_others_are_not():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 8))
    y = rng.integers(3, size=2000)
    x[10] = x[20] + 1e-4
    x[30] = x[20] - 1e-4
    y[[10, 20, 30]] = [0, 1, 1]
    x[40], y[[40, 50]] = x[50], 2  # equal rows, equal labels
    x[60], y[[60, 70]] = x[70], [0, 2]
    groups = nearness.duplicates(x, y)
    assert [10, 20, 30] in [sorted(g) for g in groups] or [10, 20] in [sorted(g) for g in groups]
    assert [60, 70] in [sorted(g) for g in groups]
    assert 40 not in np.concatenate(groups)
    assert sum(map(len, groups)) <= 5


def test_pictures_and_constant_columns_have_no_duplicates_by_accident():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (200, 1, 6, 6), dtype=np.uint8)
    pixels[:, :, 0] = 7
    y = rng.integers(2, size=200)
    assert nearness.duplicates(pixels, y) == []
    pixels[3], y[[3, 4]] = pixels[4], [0, 1]
    (group,) = nearness.duplicates(pixels, y)
    assert group.tolist() == [3, 4]
    assert nearness.duplicates(pixels[:1], y[:1]) == []


def test_votes_are_probabilities_of_the_neighbours_labels():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    x = nearness.normalised(4 * np.eye(3)[y] + rng.normal(size=(300, 3)))
    given = np.where(np.arange(300) % 10 == 0, (y + 1) % 3, y)
    probs = nearness.vote(x, given, 3, k=10)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    assert (probs.argmax(axis=1) == y).mean() > 0.95
    # A row does not vote for itself.
    alone = nearness.vote(x, np.where(np.arange(300) == 5, 2, 0), 3, k=10)
    assert alone[5].argmax() == 0
