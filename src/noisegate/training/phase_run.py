"""The training of one phase: its epochs, early stopping, best weights, and resumable state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor

from noisegate._device import Pending, drain
from noisegate.errors import DivergedError, InputError
from noisegate.networks.layout import channels_last_
from noisegate.training import distributed
from noisegate.training.averaging import copied_state, laid_out_as
from noisegate.training.distributed.replicas import Replicas
from noisegate.training.epoch_numbers import EpochNumbers, Evidence
from noisegate.training.execution import Execution, choose_execution
from noisegate.training.job import Job
from noisegate.training.phase import History, Phase, PhaseModule
from noisegate.training.precision import precision
from noisegate.training.stream import Clock, ExecutionStream
from noisegate.training.update import Step

#: Steps in a chunk of work, after which other runs get their turn.
CHUNK = 16
#: Maximum number of chunks queued on a GPU. When the driver's queue is full it blocks the host, and
#: with it every other run in this thread.
AHEAD = 4
#: Batch size times number of weights below which a second thread gains nothing on a CPU. Measured
#: on an idle CPU: a step takes 0.57 ms with one thread and 0.54 ms with two at 3 million, 1.13 ms
#: and 0.85 ms at 11 million.
SMALL_STEP = 2**22

Metrics = dict[str, float]


class PhaseRun:
    """Trains one phase, an epoch at a time.

    `state()` contains everything that changes, so that a killed run resumes from its last
    checkpoint.

    Parameters
    ----------
    phase : Phase
        What to train.
    job : Job
        The rows, the device and the seed.
    number : int
        Position of the phase in the run, from 0.
    evidence : Evidence, default=None
        Numbers computed from clean labels, for the history alone. None: none.
    evaluate_every : int, default=1
        Epochs between two full evaluations, as in `noisegate.train`.
    stream : ExecutionStream, default=None
        CUDA stream, random state and execution of the steps. None: the current stream, eagerly.

    Attributes
    ----------
    step : Step
        The training step.
    history : list of dict
        The numbers of every finished epoch.
    epoch : int
        Number of finished epochs.
    draws : bool
        Whether the next chunk of work may draw from the process's random states. A replayed CUDA
        graph draws from its own.

    Notes
    -----
    If torch.distributed is initialised with several processes, each trains on its part of every
    batch; see `noisegate.training.distributed`.
    """

    def __init__(
        self,
        phase: Phase,
        job: Job,
        number: int,
        evidence: Evidence | None = None,
        evaluate_every: int = 1,
        stream: ExecutionStream | None = None,
    ) -> None:
        self.phase, self.job, self.number, self.stream = phase, job, number, stream
        self.evaluate_every, self.recipe = evaluate_every, phase.recipe
        self.module = to_device(phase, job.device)
        self.keep = phase.keep or self.recipe.keep
        self._validate()
        world = distributed.world()
        all_rows = torch.arange(len(job.train))
        self.rows = all_rows if phase.rows is None else distributed.from_first(phase.rows.cpu())
        self.batch_size = min(self.recipe.batch_size, len(self.rows))
        if world.size <= len(self.rows) < self.recipe.batch_size:
            # Fewer rows than a batch, e.g. a small fold: use as many as can be split evenly.
            self.batch_size -= self.batch_size % world.size
        self._part = world.part(self.batch_size)
        self._replicas = Replicas(self.module, job, world)
        self.steps_per_epoch = len(self.rows) // self.batch_size
        self.step = Step(
            self.module,
            job,
            self.recipe,
            steps_per_epoch=self.steps_per_epoch,
            rows_per_step=self._part.stop - self._part.start,
            world=world,
        )
        self.n_epochs = math.ceil(self.step.total / self.steps_per_epoch)
        self._numbers = EpochNumbers(
            self.step,
            job.validation,
            evidence,
            validates_always=evaluate_every <= 1 or self._decided_by_validation,
            shows_average=self.keep == "ema",
        )
        self._execution: Execution | None = None
        self.best: dict[str, Tensor] | None = None
        self.best_score, self.stale, self.epoch = -math.inf, 0, 0
        self.history: History = []
        self.draws = True

    @property
    def _decided_by_validation(self) -> bool:
        return self.recipe.patience is not None or self.keep == "best"

    def _validate(self) -> None:
        if self._decided_by_validation and self.job.validation is None:
            raise InputError("early stopping and keep='best' need validation rows: use data.hold_out(0.1)")
        if self.keep == "ema" and not self.recipe.ema:
            raise InputError("keep='ema' needs an ema decay in the recipe, e.g. ema=0.999")
        if self.phase.rows is not None and not len(self.phase.rows):
            raise InputError("a phase has no rows to train on")

    @property
    def done(self) -> bool:
        """Whether all epochs are done, or early stopping has ended the phase."""
        patience = self.recipe.patience
        return self.epoch >= self.n_epochs or (patience is not None and self.stale >= patience)

    @property
    def small(self) -> bool:
        """Whether one CPU thread trains as fast as several: for small networks on vectors.

        A second thread can even hurt: if its core is busy, every operation waits for it. A fit of
        half a second then took half a minute.
        """
        weights = sum(p.numel() for p in self.module.parameters())
        vectors = self.job.device.type == "cpu" and len(self.job.train.shape) == 1
        return vectors and self.batch_size * weights <= SMALL_STEP

    # -- one epoch

    def run_epoch(self) -> Metrics:
        """Train one epoch and return its numbers, with the caller's random states."""
        with precision(self.recipe.precision):
            return next(drain(self.run_chunks()))

    def run_chunks(self) -> Iterator[Metrics | Pending | None]:
        """Train and evaluate one epoch in chunks of work; other runs may work between two chunks.

        Yields
        ------
        None, after work was queued and more is to come; a `Pending`, to be waited for before the
        next chunk; and finally, once, the numbers of the epoch.
        """
        clock = Clock(self.job.device)
        order, execution = self._begin_epoch()
        resident, queue = self.job.train.resident, deque[Pending]()
        # Queued batches that come from the host occupy GPU memory, so each one is a chunk of its
        # own.
        size, ahead = (CHUNK, AHEAD) if resident else (1, CHUNK)
        inputs: Iterator[Tensor | None] = (
            repeat(None, len(order)) if resident else iter(self.job.train.stream(order.unbind(0)))
        )
        for first in range(0, len(order), size):
            for x in islice(inputs, size):
                execution.step(x)
            # Only the replayed chunks within an epoch draw nothing from the process: the end of the
            # epoch runs eagerly, and so does the loading of streamed inputs.
            self.draws = not (execution.captured and resident and first + size < len(order))
            queue.append(Pending(self.job.device))
            while len(queue) > ahead and not queue[0].ready:
                yield queue[0]
            if len(queue) > ahead:
                queue.popleft()
            yield None
        tables = []
        if self.step.contradictions is not None:
            self.step.contradictions.end_epoch()
            tables = [self.step.contradictions.counts]
        self._replicas.end_epoch(order, self.step.average, *tables)
        clock.mark()
        reading = execution.evaluate(self._evaluates_fully)
        while not reading.ready:
            yield reading
        # Monte-Carlo evaluation gives each process other numbers; all must agree when to stop, so
        # the numbers of the first process count.
        metrics = self._take(distributed.from_first(reading.read()), len(order))
        self.epoch += 1
        metrics |= clock.read()
        self.history.append(metrics)
        yield metrics

    @property
    def _evaluates_fully(self) -> bool:
        """Whether clean-label metrics are computed after this epoch (always after the last)."""
        past = self.epoch + 1
        return bool(self.evaluate_every) and (past % self.evaluate_every == 0 or past == self.n_epochs)

    def _begin_epoch(self) -> tuple[Tensor, Execution]:
        """Prepare an epoch; return its row numbers `(steps, rows)` and the execution."""
        self.module.train()
        self.module.begin_epoch(self.epoch, self.job)
        if self.step.average is not None:
            self.step.average.refresh()  # begin_epoch may have replaced tensors of the module
        order = self.shuffle()
        random = None if self.stream is None else self.stream.random
        self._replicas.begin_epoch(random, self.number, self.epoch)
        if self._execution is None or self._execution.outdated:
            self._execution = choose_execution(self.step, self._numbers, self.stream, self.phase.name)
        return order, self._execution

    def shuffle(self) -> Tensor:
        """Draw the order of an epoch's rows and copy it to the device in one go.

        Returns
        -------
        int64 tensor (steps, rows)
            On the host. Of several processes each gets the columns of its part of every batch.
        """
        # With a length in steps the last epoch may be shorter.
        steps = min(self.steps_per_epoch, self.step.total - self.epoch * self.steps_per_epoch)
        shuffled = self.rows[torch.randperm(len(self.rows))[: steps * self.batch_size]]
        order = shuffled.view(steps, -1)[:, self._part].contiguous()
        if self.step.order.is_cuda:
            order = order.pin_memory()
        self.step.begin_epoch(self.epoch, order)
        return order

    def _take(self, found: Metrics, steps: int) -> Metrics:
        """Turn the raw numbers of an epoch into its metrics, and update the best weights.

        Raises
        ------
        DivergedError
            If a loss or a weight is not finite.
        """
        good, finite, last = (int(found.pop(name)) for name in ("good", "finite", "step"))
        if good < steps or not finite:
            raise DivergedError(self.number, self.epoch, last - steps + min(good, steps - 1))
        metrics = {**found, "loss": found["loss"] / steps}
        score = metrics.get(f"validation_{self.recipe.monitor}")
        if score is not None:
            self._remember(score)
        return metrics

    def _remember(self, score: float) -> None:
        """Keep the weights if the score is the best so far; else count towards patience."""
        if score > self.best_score:
            self.best_score, self.stale = score, 0
            if self.keep == "best":
                self.best = copied_state(self.module)
        else:
            self.stale += 1

    def finish(self) -> History:
        """Load the kept weights into the module, free the gradients, and return the history."""
        average = self.step.average
        kept = {"last": None, "best": self.best, "ema": None if average is None else average.values}[
            self.keep
        ]
        if kept is not None:
            self.module.load_state_dict(kept)
        self.module.eval()
        if self.step.contradictions is not None:
            self.step.contradictions.stop()
        if self.job.device.type == "cuda":
            self.step.release()
        return self.history

    # -- resuming

    def state(self) -> dict[str, Any]:
        """Everything that changes during the phase, as nested dicts of tensors and plain values."""
        # JSON has no infinity, so a missing best score is stored as None.
        return self.step.state() | {
            "best": self.best,
            "counters": [self.best_score if math.isfinite(self.best_score) else None, self.stale, self.epoch],
            "history": list(self.history),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.step.load(state)
        self._execution = None
        self.best = None if state["best"] is None else laid_out_as(self.module, state["best"])
        score, self.stale, self.epoch = state["counters"]
        self.best_score = -math.inf if score is None else score
        self.history = state["history"]


def to_device(phase: Phase, device: torch.device) -> PhaseModule:
    """Move a phase's module to the device, in the memory layout that is fastest there."""
    module = phase.module.to(device)
    if device.type == "cpu" or phase.recipe.precision == "bf16":
        channels_last_(module)
    return module
