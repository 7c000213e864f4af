"""The contract every noise keeps, over the whole registry."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from noisegate import noise as ngn
from noisegate.errors import InputError, UnknownNameError

K, N = 10, 2000
CLEAN = np.random.default_rng(3).integers(K, size=N)
EXAMPLES = {
    "symmetric": ngn.Symmetric(0.4, include_self=False),
    "asymmetric": ngn.Asymmetric(0.4, {0: 3, 2: 1}),
    "class-dependent": ngn.ClassDependent("increased"),
    "transition": ngn.Transition(ngn.Symmetric(0.3).transition(K)),
    "instance-dependent": ngn.InstanceDependent(0.3, std=0.05),
    "human": ngn.Human((CLEAN + (CLEAN > 6)) % K, "friends", clean=CLEAN),
}


@pytest.fixture(params=sorted(EXAMPLES))
def noise(request):
    return EXAMPLES[request.param]


@pytest.fixture
def x():
    return np.random.default_rng(5).random((N, 6))


def test_corrupts_a_copy_into_valid_int64_labels(noise, x):
    y = CLEAN.astype(np.int32)
    before, x_before = y.copy(), x.copy()
    observed = noise.corrupt(y, x, K, seed=1)
    assert observed.dtype == np.int64
    assert observed.shape == y.shape
    assert 0 <= observed.min() <= observed.max() < K
    assert (observed != y).any()
    assert not np.shares_memory(observed, y)
    np.testing.assert_array_equal(y, before)
    np.testing.assert_array_equal(x, x_before)
    observed[:] = 0
    assert noise.corrupt(y, x, K, seed=1).any()


def test_seed_decides(noise, x):
    one, again = (noise.corrupt(CLEAN, x, n_classes=K, seed=4) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    if noise.kind != "human":
        assert (one != noise.corrupt(CLEAN, x, n_classes=K, seed=5)).any()


def test_global_random_state_is_left_alone(noise, x):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    noise.corrupt(CLEAN, x, K)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_round_trip_through_json(noise, x):
    again = ngn.Noise.from_dict(json.loads(json.dumps(noise.to_dict())))
    assert again == noise
    assert hash(again) == hash(noise)
    assert type(again) is type(noise)
    assert again.to_dict()["name"] == noise.kind
    np.testing.assert_array_equal(again.corrupt(CLEAN, x, K), noise.corrupt(CLEAN, x, K))


def test_transition_rows_sum_to_one_or_the_reason_is_given(noise):
    if noise.kind in ("instance-dependent", "human"):
        with pytest.raises(InputError, match=r"no .*transition matrix"):
            noise.transition(K)
        return
    t = noise.transition(K)
    assert t.shape == (K, K)
    assert (t >= 0).all()
    np.testing.assert_allclose(t.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("y", "n_classes", "message"),
    [
        ([0, 1, 10], 10, r"0\.\.9, got 0\.\.10"),
        ([-1, 1], 10, r"got -1\.\.1"),
        ([0.0, 1.0], 10, "integer labels"),
        ([[0], [1]], 10, "shape"),
        ([], None, "n_classes"),
        ([0], 0, "at least 1"),
        ([0], 2.5, "integer"),
    ],
)
def test_bad_labels(noise, y, n_classes, message):
    with pytest.raises(InputError, match=message):
        noise.corrupt(np.array(y), np.zeros((len(y), 2)), n_classes)


@pytest.mark.parametrize("seed", [-1, 0.5, "a"])
def test_bad_seed(seed):
    with pytest.raises(InputError, match="seed"):
        ngn.Symmetric(0.1).corrupt([0, 1], seed=seed)


def test_settings_cannot_change():
    with pytest.raises(AttributeError):
        ngn.Symmetric(0.1).rate = 0.2
    with pytest.raises(ValueError, match="read-only"):
        EXAMPLES["transition"].matrix[0, 0] = 1.0


def test_equality_is_about_settings():
    assert ngn.Symmetric(0.1) != ngn.Symmetric(0.2)
    assert ngn.Symmetric(0.1) != ngn.Symmetric(0.1, include_self=False)
    assert ngn.ClassDependent([0.1, 0.2]) == ngn.ClassDependent((0.1, 0.2))
    assert ngn.InstanceDependent(0.1) != "instance-dependent"


def test_build():
    assert ngn.build("symmetric", rate=0.3) == ngn.Symmetric(0.3)
    assert ngn.build({"name": "asymmetric", "rate": 0.3}, mapping="mnist") == ngn.Asymmetric(0.3, "mnist")
    assert ngn.build(EXAMPLES["human"]) is EXAMPLES["human"]
    # Noise on maps has its own tests.
    own = {kind for kind, noise in ngn.NOISES.own().items() if not issubclass(noise, ngn.MapNoise)}
    assert set(EXAMPLES) == own


def test_build_refuses():
    with pytest.raises(UnknownNameError, match="did you mean 'symmetric'"):
        ngn.build("symetric", rate=0.3)
    with pytest.raises(InputError, match="include_self"):
        ngn.build("symmetric", alpha=0.3)
    with pytest.raises(InputError, match="rate: "):
        ngn.build("symmetric")
    with pytest.raises(InputError, match="'name'"):
        ngn.build({"rate": 0.3})
    with pytest.raises(InputError, match="already made"):
        ngn.build(ngn.Symmetric(0.1), rate=0.3)


def test_importing_needs_numpy_only():
    heavy = ("torch", "pandas", "scipy", "sklearn", "PIL", "pooch")
    code = f"import sys, noisegate.noise; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "[]", done.stderr
