import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons
from sklearn.linear_model import LogisticRegression

from noisegate.data import load
from noisegate.errors import InputError


@pytest.mark.parametrize("name", ["moons", "circles", "gaussians"])
def test_the_seed_decides_everything_and_train_is_not_test(name):
    one, same, other = (load(name, n=100, n_test=60, seed=s) for s in (1, 1, 2))
    assert one.train.x.shape == (100, 2)
    assert one.test.x.shape == (60, 2)
    assert one.train.x.dtype == np.float32
    np.testing.assert_array_equal(one.train.x, same.train.x)
    np.testing.assert_array_equal(one.test.y, same.test.y)
    assert not np.array_equal(one.train.x, other.train.x)
    assert not np.intersect1d(one.train.x[:, 0], one.test.x[:, 0]).size
    assert np.bincount(one.train.y).tolist() == [50, 50]
    assert one.classes == ("0", "1")
    with pytest.raises(InputError, match="at least 2"):
        load(name, n=1)


@pytest.mark.parametrize("name", ["moons", "circles", "gaussians"])
def test_global_random_state_is_left_alone(name):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    load(name)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("name", "oracle"),
    [("moons", lambda: make_moons(4000, noise=None)), ("circles", lambda: make_circles(4000, factor=0.5))],
)
def test_curves_are_those_of_scikit_learn(name, oracle):
    x, y = oracle()
    ours = load(name, n=2000, noise=0.0).train
    for k in (0, 1):
        gap = np.linalg.norm(ours.x[ours.y == k][:, None] - x[y == k][None], axis=2).min(1)
        assert gap.max() < 0.01


def test_noise_has_the_stated_deviation():
    radius = np.linalg.norm(load("circles", n=20_000, noise=0.05).train.x, axis=1)
    y = load("circles", n=20_000, noise=0.05).train.y
    assert radius[y == 0].std() == pytest.approx(0.05, rel=0.03)


def test_gaussians_are_those_of_the_paper():
    train = load("gaussians", n=40_000).train
    for k, centre in ((0, -1), (1, 1)):
        x = train.x[train.y == k]
        np.testing.assert_allclose(x.mean(0), [centre, centre], atol=0.003)
        np.testing.assert_allclose(np.cov(x.T), 0.01 * np.eye(2), atol=5e-4)
    model = LogisticRegression(C=1e6).fit(train.x, train.y)
    assert abs(model.intercept_[0]) / np.linalg.norm(model.coef_) < 0.1  # through the origin


@pytest.mark.parametrize(
    ("name", "option"),
    [("moons", {"noise": -1}), ("circles", {"factor": 1.0}), ("gaussians", {"variance": float("nan")})],
)
def test_impossible_options_are_refused(name, option):
    with pytest.raises(InputError, match=next(iter(option))):
        load(name, **option)
