import numpy as np
from sklearn.datasets import load_digits

from noisegate.data import load


def test_vectors_are_scikit_learns_in_a_fixed_stratified_split():
    data, again = load("digits"), load("digits", seed=5)
    x, y = load_digits(return_X_y=True)
    assert (len(data.train), len(data.test)) == (1347, 450)
    np.testing.assert_array_equal(data.train.x, again.train.x)
    both = np.concatenate([data.train.x, data.test.x])
    assert both.dtype == np.float32
    assert both.min() == 0
    assert both.max() == 1
    ours = sorted(map(tuple, np.c_[both * 16, np.concatenate([data.train.y, data.test.y])]))
    assert ours == sorted(map(tuple, np.c_[x, y]))
    np.testing.assert_array_equal(np.bincount(data.test.y), np.round(np.bincount(y) / 4))


def test_images_hold_the_same_pixels():
    images, vectors = load("digits", as_images=True), load("digits")
    assert images.train.x.shape == (1347, 1, 8, 8)
    assert images.train.x.dtype == np.uint8
    assert images.train.x.max() == 255
    np.testing.assert_array_equal(images.train.y, vectors.train.y)
    np.testing.assert_allclose(images.train.x.reshape(-1, 64) / 255, vectors.train.x, atol=0.5 / 255 + 1e-6)
    assert images.reader.size == 8
