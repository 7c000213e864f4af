"""The lock of the process's state, and fits in parallel threads of one process."""

import os
import random
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import noisegate as ng
from noisegate._turns import Turn
from noisegate.data import Dataset, Split
from noisegate.methods import METHODS
from noisegate.training import phase_run

QUICK = {name: {"n_samples": 10, "n_samples_eval": 10} for name in ("het", "het-tau", "het-full")}


def test_threads_get_it_in_the_order_in_which_they_ask():
    turn, order = Turn(), []

    def work(number):
        with turn:
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    with turn:
        for count, thread in enumerate(threads, 1):
            thread.start()
            while len(turn._waiting) < count:
                time.sleep(1e-3)
        assert turn.wanted
    with turn:
        # They were first, although this thread never slept.
        assert order == [0, 1, 2, 3, 4]
    for thread in threads:
        thread.join()
    assert not turn.wanted


def test_its_owner_may_take_it_again_and_errors_give_it_back():
    turn = Turn()
    with pytest.raises(KeyError), turn, turn:
        raise KeyError
    taken = threading.Thread(target=turn.__enter__)
    taken.start()
    taken.join(timeout=10)
    assert not taken.is_alive()


def test_who_stops_waiting_is_not_waited_for():
    turn = Turn()
    with turn:
        gate = threading.Lock()
        turn._waiting.append((1, gate))
        turn._withdraw(1, gate)
        assert not turn.wanted
    with turn:
        pass


@pytest.fixture
def few():
    rng = np.random.default_rng(0)
    clean = rng.integers(0, 3, 90)
    x = (np.eye(3, 4)[clean] * 2 + rng.uniform(-1, 1, (90, 4))).astype(np.float32)
    y = np.where(np.arange(90) % 4 == 0, (clean + 1) % 3, clean)
    splits = Split(x[:60], y[:60], clean[:60]), Split(x[60:], clean[60:])
    return Dataset("few", *splits, classes=("a", "b", "c")).hold_out(0.2, seed=0)


def fit(name, data):
    """The bits of a fit's weights, and its metrics."""
    method = ng.methods.get(name, **QUICK.get(name, {}))
    # Precisions change the process's settings, each in its way.
    precision = ("fp32", "tf32", "bf16")[sorted(METHODS).index(name) % 3]
    recipe = ng.Recipe(epochs=2, batch_size=12, lr=0.01, precision=precision)
    fitted = ng.train(data, method, "mlp-6", recipe, seed=3, device="cpu", evaluate_every=0)
    weights = {k: v.numpy().tobytes() for k, v in fitted.network.state_dict().items()}
    return weights, {k: v for k, v in fitted.metrics.items() if k != "seconds"}


def state_of_the_process():
    cudnn = torch.backends.cudnn
    return [
        torch.get_rng_state().tolist(),
        [np.asarray(part).tolist() for part in np.random.get_state()],  # noqa: NPY002
        random.getstate(),
        (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32),
        torch.get_float32_matmul_precision(),
        (torch.get_num_threads(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()),
        (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), np.geterr()),
        dict(os.environ),
        list(warnings.filters),
    ]


def test_fits_in_three_threads_are_those_of_each_alone(few, monkeypatch):
    names = sorted(METHODS)
    before = state_of_the_process()
    alone = {name: fit(name, few) for name in names}
    *state, environment, filters = state_of_the_process()
    assert state == before[:-2]
    before[-2:] = environment, filters  # modules that are imported for the first time may change these
    monkeypatch.setattr(phase_run, "CHUNK", 1)  # a turn is a single step
    found, errors = {}, []

    def work(number):
        try:
            # Each thread in an order of its own, so that all kinds of methods meet.
            for name in np.roll(names, 8 * number).tolist():
                found[number, name] = fit(name, few)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    differing = {name for (number, name), outcome in found.items() if outcome != alone[name]}
    assert not differing
    assert len(found) == 3 * len(names)
    assert state_of_the_process() == before


def test_reading_in_threads_leaves_the_filters_of_warnings_as_they_were(tmp_path, monkeypatch):
    """A row too short is read leniently, and pandas' warning is made an error for that time."""
    path = tmp_path / "table.csv"
    path.write_text("label,a,b\n" + "x,1,2\ny,3\n" * 30)
    read, waits = pd.read_csv, iter([0.03, 0.01, 0.02, 0.0])

    def slowly(*args, **kwargs):
        time.sleep(next(waits))
        return read(*args, **kwargs)

    monkeypatch.setattr(pd, "read_csv", slowly)
    before, shapes = list(warnings.filters), []

    def work():
        shapes.append(ng.data.load(path, label="label").train.x.shape)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shapes == [(60, 3)] * 4  # the last column: whether b is missing
    assert list(warnings.filters) == before


def test_no_thread_waits_until_another_ones_fit_is_over(few):
    """Threads take turns within an epoch."""
    recipe = ng.Recipe(epochs=1, steps=None, batch_size=2)
    large = Dataset(
        "large", Split(np.tile(few.train.x, (60, 1)), np.tile(few.train.y, 60)), classes=few.classes
    )
    ended = []

    def work(data, name):
        ng.train(data, "ce", "mlp-6", recipe, device="cpu", evaluate_every=0)
        ended.append(name)

    long = threading.Thread(target=work, args=(large, "long"))
    long.start()
    work(few, "short")
    long.join()
    assert ended == ["short", "long"]
