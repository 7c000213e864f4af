import numpy as np
import torch

from noisegate.networks.prepare import centre_crop
from noisegate.training.augment import random_crop, random_flip


def marked(n=64, size=6):
    """Images whose pixels say where they are."""
    grid = torch.arange(1, size * size + 1, dtype=torch.int16).reshape(1, 1, size, size)
    return grid.expand(n, 2, size, size).clone()


def test_each_crop_is_a_window_of_its_own_padded_image():
    images = marked(n=400)
    crops = random_crop(images, 2, (6, 6))
    padded = torch.nn.functional.pad(images[0], [2] * 4)
    windows = {
        tuple(padded[0, a : a + 6, b : b + 6].flatten().tolist()): (a, b) for a in range(5) for b in range(5)
    }
    seen = [windows[tuple(crop[0].flatten().tolist())] for crop in crops]
    assert torch.equal(crops[:, 0], crops[:, 1])
    # All 25 windows occur, about equally often: 16 each, with a deviation of 4.
    counts = np.bincount([5 * a + b for a, b in seen], minlength=25)
    assert counts.min() > 0
    assert counts.max() < 40


def test_a_crop_can_be_smaller_than_the_image():
    assert random_crop(marked(), 0, (4, 3)).shape == (64, 2, 4, 3)


def test_half_of_the_images_are_mirrored():
    images = marked(n=1000)
    flipped = random_flip(images)
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 420 < int(mirrored.sum()) < 580


def test_the_centre_is_cut_out_and_smaller_images_stay():
    images = marked()
    assert torch.equal(centre_crop(images, (4, 2)), images[:, :, 1:5, 2:4])
    assert torch.equal(centre_crop(images, (6, 6)), images)
