"""The trainer: it owns the loop, and knows nothing of methods or objectives."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.errors import DivergedError, InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Batch, History, Method, Phase
from noisegate.training.checkpoint import RunFolder
from noisegate.training.job import Job, given_labels
from noisegate.training.optimizers import build_optimizer
from noisegate.training.randomness import seeded

CHECKPOINT_SECONDS = 30.0
Evidence = Callable[[nn.Module, Any], dict[str, float]]


@dataclass(frozen=True)
class Epoch:
    """What the trainer tells after each epoch: where it is, and the numbers it saw."""

    phase: int
    phase_name: str
    epoch: int
    n_epochs: int
    metrics: dict[str, float]


class PhaseRun:
    """A phase under way: its optimiser, schedule, moving average, best weights and history.

    Everything that changes is in `state()`, so that a killed run goes on from the last one stored.
    """

    def __init__(
        self, phase: Phase, job: Job, number: int, evidence: Evidence | None, evaluate_every: int
    ) -> None:
        self.phase, self.job, self.number = phase, job, number
        self.evidence, self.evaluate_every = evidence, evaluate_every
        self.module, self.recipe = phase.module.to(job.device), phase.recipe
        self.keep = phase.keep or self.recipe.keep
        self._check()
        rows = torch.arange(len(job.train)) if phase.rows is None else phase.rows.cpu()
        self.rows, self.batch_size = rows, min(self.recipe.batch_size, len(rows))
        self.steps_per_epoch = len(rows) // self.batch_size
        rates = self.recipe.learning_rates(self.steps_per_epoch)
        self.total_steps = len(rates)
        self.n_epochs = math.ceil(self.total_steps / self.steps_per_epoch)
        device = job.device
        self.rates = torch.tensor(rates, dtype=torch.float32, device=device)
        self.lr = self.rates[0].clone()
        self.optimizer = build_optimizer(self.module, self.recipe, self.lr)
        self.step_number = torch.zeros((), dtype=torch.int64, device=device)
        self.epoch_number = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.average = self._copy() if self.recipe.ema else None
        self.best: dict[str, Tensor] | None = None
        self.best_score, self.stale, self.epoch = -math.inf, 0, 0
        self.history: History = []

    def _check(self) -> None:
        looks_at_validation = self.recipe.patience is not None or self.keep == "best"
        if looks_at_validation and self.job.validation is None:
            raise InputError("early stopping and keep='best' need validation rows: use data.hold_out(0.1)")
        if self.keep == "ema" and not self.recipe.ema:
            raise InputError("keep='ema' needs an ema decay in the recipe, e.g. ema=0.999")
        if self.phase.rows is not None and not len(self.phase.rows):
            raise InputError("a phase has no rows to train on")

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    @property
    def done(self) -> bool:
        """Whether all epochs are over, or patience is."""
        patience = self.recipe.patience
        return self.epoch >= self.n_epochs or (patience is not None and self.stale >= patience)

    # One update. Everything from here to `_update` is capture-safe.

    def step(self, index: Tensor, x: Tensor | None) -> None:
        """One update on the rows `index`; their inputs are gathered here unless they were streamed in."""
        rows = self.job.train
        self.lr.copy_(self.rates.index_select(0, self.step_number.view(1)).view(()))
        x = self.job.augment(rows.gather(index) if x is None else x, self.recipe)
        batch = Batch(x, rows.y[index], index, rows.weight[index], self.epoch_number)
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            result = self.module(batch)
        loss, active = result if isinstance(result, tuple) else (result, None)
        loss.backward()
        self._update(active)
        fresh = (self.bad_step < 0) & ~torch.isfinite(loss.detach())
        self.bad_step.copy_(torch.where(fresh, self.step_number, self.bad_step))
        self.loss_sum.add_(loss.detach())
        self.step_number.add_(1)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.recipe.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.job.device.type, dtype=torch.bfloat16)

    def _update(self, active: Tensor | None) -> None:
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.clip_norm, foreach=True)
        # torch's fused optimisers leave weights, moments and counters alone where this mark is 1.
        self.optimizer.found_inf = None if active is None else 1.0 - active.float()  # type: ignore[attr-defined]
        self.optimizer.step()
        if self.average is not None:
            self._follow(self.average)

    @torch.no_grad()
    def _follow(self, average: dict[str, Tensor]) -> None:
        for name, value in self.module.state_dict().items():
            if value.is_floating_point():
                average[name].lerp_(value, 1.0 - self.recipe.ema)
            else:
                average[name].copy_(value)

    # One epoch.

    def run_epoch(self) -> dict[str, float]:
        """Train one epoch, look at the validation rows, and return what was seen. Call it inside `seeded`."""
        started = time.perf_counter()
        self.module.train()
        self.module.begin_epoch(self.epoch, self.job)
        self.epoch_number.fill_(self.epoch)
        self.loss_sum.zero_()
        left = self.total_steps - self.epoch * self.steps_per_epoch
        steps = min(self.steps_per_epoch, left)
        order = self.rows[torch.randperm(len(self.rows))[: steps * self.batch_size]]
        with _precision(self.recipe.precision):
            for index, x in self.job.train.batches(order, self.batch_size):
                self.step(index, x)
            self._raise_if_diverged()
            metrics = {"loss": float(self.loss_sum) / steps, "lr": float(self.lr)}
            trained = time.perf_counter()
            metrics |= self._validate()
        self.epoch += 1
        metrics |= {"train_seconds": trained - started, "seconds": time.perf_counter() - started}
        self.history.append(metrics)
        return metrics

    def _raise_if_diverged(self) -> None:
        finite = torch.stack([torch.isfinite(p).all() for p in self.module.parameters()]).all()
        bad, sound, last = torch.stack([self.bad_step, finite.long(), self.step_number]).tolist()
        if bad >= 0 or not sound:
            raise DivergedError(self.number, self.epoch, bad if bad >= 0 else last - 1)

    def _validate(self) -> dict[str, float]:
        with self._kept_view():
            network, objective = self.module.predictor()
            metrics = {}
            if self.job.validation is not None:
                rows = self.job.validation
                seen = given_labels(network, objective, rows, rows.y)
                metrics = {f"validation_{name}": value for name, value in seen.items()}
                self._remember(metrics[f"validation_{self.recipe.monitor}"])
            due = self.evaluate_every and (self.epoch + 1) % self.evaluate_every == 0
            if self.evidence is not None and due:
                metrics |= self.evidence(network, objective)
        return metrics

    @contextlib.contextmanager
    def _kept_view(self) -> Iterator[None]:
        """Inside, the module shows the averaged weights where those are what the phase will keep."""
        if self.keep != "ema" or self.average is None:
            yield
            return
        trained = self._copy()
        self.module.load_state_dict(self.average)
        try:
            yield
        finally:
            self.module.load_state_dict(trained)

    def _remember(self, score: float) -> None:
        if score > self.best_score:
            self.best_score, self.stale = score, 0
            if self.keep == "best":
                self.best = self._copy()
        else:
            self.stale += 1

    def finish(self) -> History:
        """Put the kept weights into the module."""
        kept = {"last": None, "best": self.best, "ema": self.average}[self.keep]
        if kept is not None:
            self.module.load_state_dict(kept)
        self.module.eval()
        return self.history

    # Going on after a kill.

    def state(self) -> dict[str, Any]:
        """Everything that changes during the phase, as a tree of tensors and plain values."""
        optimizer = self.optimizer.state_dict()["state"]
        return {
            "module": self.module.state_dict(),
            "optimizer": {str(key): value for key, value in optimizer.items()},
            "average": self.average,
            "best": self.best,
            "counters": [self.best_score if math.isfinite(self.best_score) else None, self.stale, self.epoch],
            "step": self.step_number,
            "history": self.history,
        }

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        device = self.job.device
        self.module.load_state_dict(state["module"])
        packed = self.optimizer.state_dict()
        packed["state"] = {int(key): value for key, value in state["optimizer"].items()}
        self.optimizer.load_state_dict(packed)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.average, self.best = (_moved(state[name], device) for name in ("average", "best"))
        score, self.stale, self.epoch = state["counters"]
        self.best_score = -math.inf if score is None else score
        self.step_number.copy_(state["step"])
        self.history = state["history"]


def _moved(weights: dict[str, Tensor] | None, device: torch.device) -> dict[str, Tensor] | None:
    return None if weights is None else {name: value.to(device) for name, value in weights.items()}


@contextlib.contextmanager
def _precision(name: str) -> Iterator[None]:
    """Matrix products in tf32 where the recipe allows it, in full float32 where it does not."""
    before = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = name != "fp32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolutions


class Training:
    """One run: iterate over it to train an epoch at a time; `fitted` is there at the end.

    The global random state is forked around every epoch and every stretch of the method's own code, so runs
    can be interleaved in one thread and the caller's random numbers stay what they were.

    Parameters
    ----------
    method : Method
    job : Job
    folder : RunFolder, optional
        Where checkpoints go and are resumed from.
    evidence : function (network, objective) -> dict, optional
        Looks at clean labels; its numbers go to the history and nowhere else.
    evaluate_every : int
        Epochs between two looks; 0: none.
    """

    def __init__(
        self,
        method: Method,
        job: Job,
        *,
        folder: RunFolder | None = None,
        evidence: Evidence | None = None,
        evaluate_every: int = 1,
    ) -> None:
        self.method, self.job, self.folder = method, job, folder
        self.evidence, self.evaluate_every = evidence, evaluate_every
        self.histories: list[History] = []
        self.fitted: Fitted | None = None
        self._saved = time.monotonic()

    def __iter__(self) -> Iterator[Epoch]:
        self._refuse_diverged()
        phases = self.method.phases(self.job)
        result: Any = None
        number = 0
        while True:
            try:
                with seeded(self.job.seed, "phase", number, device=self.job.device):
                    phase = phases.send(result)
            except StopIteration as stop:
                self.fitted = stop.value
                break
            result = yield from self._phase(phase, number)
            self.histories.append(result)
            number += 1

    def _refuse_diverged(self) -> None:
        where = self.folder.divergence if self.folder else None
        if where is not None:
            raise DivergedError(**where)

    def _phase(self, phase: Phase, number: int) -> Generator[Epoch, None, History]:
        stored = self.folder.finished_phase(number) if self.folder else None
        if stored is not None:
            phase.module.to(self.job.device).load_state_dict(stored["module"])
            phase.module.eval()
            return stored["history"]
        with seeded(self.job.seed, "phase", number, "set-up", device=self.job.device):
            run = PhaseRun(phase, self.job, number, self.evidence, self.evaluate_every)
        state = self.folder.current(number) if self.folder else None
        if state is not None:
            run.load(state)
        while not run.done:
            yield self._epoch(run)
        history = run.finish()
        if self.folder:
            self.folder.finish_phase(number, {"module": phase.module.state_dict(), "history": history})
        return history

    def _epoch(self, run: PhaseRun) -> Epoch:
        try:
            with seeded(self.job.seed, "epoch", run.number, run.epoch, device=self.job.device):
                metrics = run.run_epoch()
        except DivergedError as error:
            if self.folder:
                self.folder.record_divergence(phase=error.phase, epoch=error.epoch, step=error.step)
            raise
        if self.folder and time.monotonic() - self._saved >= CHECKPOINT_SECONDS:
            self.folder.save_current(run.number, run.state())
            self._saved = time.monotonic()
        return Epoch(run.number, run.phase.name, run.epoch, run.n_epochs, metrics)
