"""What the rest of the library takes for granted of a method, one function a promise."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisegate import data as datasets
from noisegate import noise
from noisegate._registry import Registry
from noisegate.data.dataset import Dataset
from noisegate.fitted import Fitted
from noisegate.methods import Method, Phase
from noisegate.runs.train import train
from noisegate.testing.guard import operations
from noisegate.training.job import Job, make_job
from noisegate.training.phase_run import PhaseRun
from noisegate.training.recipe import Recipe

#: Makes the method that is checked.
Make = Callable[[], Method]
Check = Callable[[Make], None]

#: The promises by name.
METHOD_CHECKS: Registry[Check] = Registry("check of methods")

_NETWORK = "mlp-16"
_RECIPE = Recipe(epochs=2, batch_size=32)


def check_method(method: type[Method], **params: Any) -> None:
    """Check that a method keeps the promises that the rest of noisegate relies on.

    It is trained for a few epochs on small data of three classes. Among the promises: the same seed
    gives the same result, clean labels change nothing, a stored model predicts as before, settings
    are plain data, and every training step can be captured in a CUDA graph.

    Parameters
    ----------
    method : type of Method
    **params
        Its parameters.

    Raises
    ------
    AssertionError
        Names the class and the first promise that it breaks.

    >>> from noisegate.methods import METHODS, Method
    >>> check_method(Method.classes["Mixup"], alpha=0.5)
    """
    for name, check in METHOD_CHECKS.items():
        try:
            check(lambda: method(**params))
        except Exception as error:
            raise AssertionError(f"{method.__name__}: {name}: {error}") from error


def _promise(name: str) -> Callable[[Check], Check]:
    """Add a check under the name that its failure is told by."""
    return lambda check: METHOD_CHECKS.add(name, check, __name__)


def small_data() -> Dataset:
    """Three classes of points on a plane, 150 for training with noisy labels, noisy validation rows among them."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    angle = 2 * np.pi * y / 3
    x = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.4 * rng.standard_normal((240, 2))
    x = x.astype(np.float32)
    whole = datasets.from_arrays(x[:150], y[:150], x_test=x[150:], y_test=y[150:], name="three classes")
    return whole.corrupt(noise.Symmetric(0.3), seed=0).hold_out(0.2)


def fit(method: Method, data: Dataset | None = None, *, seed: int = 0) -> Fitted:
    """The method trained on the small data, on the CPU."""
    return train(
        small_data() if data is None else data,
        method,
        _NETWORK,
        _RECIPE,
        seed,
        "cpu",
        evaluate_every=0,
        progress=False,
    )


def learnt(fitted: Fitted) -> list[Tensor]:
    """All that training changed: weights, buffers and what the method learnt beside."""
    return [
        value.detach()
        for value in (*fitted.network.state_dict().values(), *fitted.extras.values())
        if isinstance(value, Tensor)
    ]


def same(first: Fitted, second: Fitted) -> bool:
    """Whether two classifiers are the same bit for bit."""
    pairs = zip(learnt(first), learnt(second), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@_promise("settings")
def _settings(make: Make) -> None:
    """They are plain data from which the same method is built."""
    method = make()
    assert method.get_params().keys() == make().get_params().keys()
    again = Method.from_settings(method.settings())
    assert again.settings() == method.settings(), "the method of the settings has others"


@_promise("probabilities")
def _probabilities(make: Make) -> None:
    """What is returned predicts: one row of probabilities for each input."""
    data = small_data()
    probs = fit(make(), data).predict_proba(data.test.x)  # type: ignore[union-attr]
    assert probs.shape == (90, 3), f"probabilities of shape {probs.shape}, expected (90, 3)"
    assert np.isfinite(probs).all(), "a probability is not finite"
    np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-9)


@_promise("seeds")
def _seeds(make: Make) -> None:
    """The same seed gives the same bits, another one other weights."""
    first = fit(make(), seed=1)
    assert same(first, fit(make(), seed=1)), "two runs with one seed differ: draw from torch's generator only"
    assert not same(first, fit(make(), seed=2)), "the seed decides nothing"


@_promise("clean labels")
def _clean_labels(make: Make) -> None:
    """They take no part in training: others in their place change nothing."""
    data = small_data()

    def shifted(split: Any) -> Any:
        return dataclasses.replace(split, clean=(split.clean + 1) % 3)

    others = dataclasses.replace(data, train=shifted(data.train), validation=shifted(data.validation))
    assert same(fit(make(), data), fit(make(), others)), "training depends on clean labels"


@_promise("stored models")
def _stored(make: Make) -> None:
    """A model folder predicts what the classifier predicted that was saved."""
    data = small_data()
    fitted = fit(make(), data)
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        read = Fitted.load(folder)
    found, expected = (f.predict_proba(data.test.x) for f in (read, fitted))  # type: ignore[union-attr]
    np.testing.assert_array_equal(found, expected)


@_promise("gradients")
def _gradients(make: Make) -> None:
    """Every parameter that is trained gets a gradient in each phase."""
    job = small_job()
    for run in phase_runs(make(), job):
        parameters = {n: p for n, p in run.module.named_parameters() if p.requires_grad}
        assert parameters, f"phase {run.number} trains no parameter"
        moved = dict.fromkeys(parameters, False)
        while not run.done:
            run.run_epoch()
            for name, parameter in parameters.items():
                moved[name] |= parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        idle = [name for name, has in moved.items() if not has]
        assert not idle, (
            f"phase {run.number} trains {', '.join(idle)} without a gradient: freeze or drop them"
        )


@_promise("capture")
def _capture(make: Make) -> None:
    """A step holds no operation that a CUDA graph cannot, and is the same for all rows."""
    job = small_job()
    for run in phase_runs(make(), job):
        run.module.train()
        run.module.begin_epoch(0, job)
        order = torch.arange(len(job.train))
        index = next(iter(job.train.batches(order, run.batch_size)))[0]
        run.step.on(index, None)  # makes the optimiser's buffers, which exist before a capture
        first, second = (_operations(run, (index + shift) % len(order)) for shift in (0, 1))
        assert first == second, f"the operations of a step of phase {run.number} depend on its rows"


def _operations(run: PhaseRun, index: Tensor) -> list[Any]:
    return operations(lambda: run.step.on(index, None))


def small_job() -> Job:
    """The job of the small data, on the CPU."""
    return make_job(small_data(), _NETWORK, _RECIPE, 0, torch.device("cpu"))


def phase_runs(method: Method, job: Job) -> Iterator[PhaseRun]:
    """Every phase of a method, ready to train.

    Whoever takes one may train it before taking the next.
    """
    phases = method.phases(job)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        phase: Phase = next(phases)
        for number in range(1_000):
            run = PhaseRun(phase, job, number, None, 0)
            yield run
            while not run.done:
                run.run_epoch()
            try:
                phase = phases.send(run.finish())
            except StopIteration as stop:
                if not isinstance(stop.value, Fitted):
                    raise AssertionError("phases() must return a Fitted") from None
                return
