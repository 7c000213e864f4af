"""The trainer: drives a generator of phases. It knows neither methods nor objectives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noisegate._device import Pending, drain
from noisegate._turns import TURN
from noisegate.errors import DivergedError
from noisegate.fitted import Fitted
from noisegate.training import distributed
from noisegate.training.checkpoint import CheckpointWriter, RunFolder
from noisegate.training.epoch_numbers import Evidence
from noisegate.training.job import Job
from noisegate.training.phase import History, Phase, Phases
from noisegate.training.phase_run import Metrics, PhaseRun, to_device
from noisegate.training.precision import one_thread, precision
from noisegate.training.stream import ExecutionStream

#: Minimum number of seconds between two checkpoints of an unfinished phase.
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Epoch:
    """The report after each epoch: the position in the run, and the numbers of the epoch.

    Attributes
    ----------
    phase : int
        Number of the phase, from 0.
    phase_name : str
    epoch, n_epochs : int
        Finished epochs and total epochs of the phase.
    metrics : dict of str to float
    """

    phase: int
    phase_name: str
    epoch: int
    n_epochs: int
    metrics: Metrics


class Trainer:
    """Trains one run. Iterate over it to train an epoch at a time, then read `fitted`.

    Each trainer has its own random state and, on a GPU, its own stream. So several runs can be
    interleaved, in one thread or in several, and the caller's random states do not change.

    Parameters
    ----------
    phases : function (job) -> generator of phases
        A method's `phases`.
    job : Job
        The rows, the network, the recipe, the seed and the device.
    folder : RunFolder, default=None
        Where checkpoints are written to and resumed from. None: no checkpoints.
    evidence : Evidence, default=None
        Numbers computed from clean labels. They go to the history and nowhere else. None: none.
    evaluate_every : int, default=1
        Epochs between two evaluations of the evidence, which is always evaluated after the last
        epoch; 0: never. If it is more than 1, the validation rows are evaluated at the same epochs,
        unless the recipe needs them after every epoch (patience, keep="best").
    execution : {"auto", "eager", "captured", "compiled"}, default="auto"
        See `noisegate.training.stream.ExecutionStream`.

    Attributes
    ----------
    histories : list of list of dict
        One list per phase, one dict per epoch.
    fitted : Fitted or None
        What the generator returned; None until the run is finished.
    """

    def __init__(
        self,
        phases: Callable[[Job], Phases],
        job: Job,
        *,
        folder: RunFolder | None = None,
        evidence: Evidence | None = None,
        evaluate_every: int = 1,
        execution: str = "auto",
    ) -> None:
        self.phases, self.job, self.folder = phases, job, folder
        self.evidence, self.evaluate_every = evidence, evaluate_every
        self.stream = ExecutionStream(job.device, execution)
        self.histories: list[History] = []
        self.fitted: Fitted | None = None
        self._contradicted: Tensor | None = None
        self._checkpointed = time.monotonic()
        self._writer = CheckpointWriter(job.device)

    def __iter__(self) -> Iterator[Epoch]:
        return drain(self.run_chunks())

    def run_chunks(self) -> Iterator[Epoch | Pending | None]:
        """Train in chunks of work; other runs in the same thread may work between two chunks.

        Yields
        ------
        An `Epoch`, after each epoch; None, after work was queued on a GPU and more is to come; or a
        `Pending`, which must be ready before the next chunk is asked for.
        """
        self._refuse_diverged()
        self.stream.open()
        phases = self.phases(self.job)
        result: Any = None
        number = 0
        while True:
            try:
                with self._seeded("phase", number):
                    phase = phases.send(result)
            except StopIteration as stop:
                self.fitted = self._with_contradictions(stop.value)
                break
            result = yield from self._run_phase(phase, number)
            self.histories.append(result)
            number += 1
        self.close()

    def close(self) -> None:
        """Wait until the last checkpoint is on disk; make the caller's stream wait for ours."""
        try:
            # If the GPU has failed, the original error matters more than one from closing the
            # stream.
            with contextlib.suppress(RuntimeError):
                self.stream.close()
        finally:
            self._writer.close()

    @contextlib.contextmanager
    def _seeded(self, *key: int | str) -> Iterator[None]:
        """Inside, random numbers depend on the run's seed and this key alone.

        So a phase that is loaded instead of trained does not change the random numbers of the next.
        """
        self.stream.random.seed(self.job.seed, *key)
        with self.stream.active(), precision(self.job.recipe.precision):
            yield

    def _refuse_diverged(self) -> None:
        """Raise if the folder says that this run diverged before: it would diverge again."""
        where = distributed.from_first(self.folder.divergence if self.folder else None)
        if where is not None:
            raise DivergedError(**where)

    def _run_phase(self, phase: Phase, number: int) -> Generator[Epoch | Pending | None, None, History]:
        """Train a phase, or load its final state if it had finished; return its history."""
        # Only the first process has the folder; it sends the others what is stored there.
        stored = distributed.from_first(self.folder.finished_phase(number) if self.folder else None)
        if stored is not None:
            with self.stream.active():
                to_device(phase, self.job.device).load_state_dict(stored["module"])
            phase.module.eval()
            self._add_contradictions(stored.get("contradicted"))
            return stored["history"]
        with self._seeded("phase", number, "set-up"):
            run = PhaseRun(phase, self.job, number, self.evidence, self.evaluate_every, self.stream)
            state = distributed.from_first(self.folder.current(number) if self.folder else None)
            if state is not None:
                run.load(state)
        while not run.done:
            metrics = yield from self._run_epoch(run)
            self._checkpoint(run)
            yield Epoch(number, phase.name, run.epoch, run.n_epochs, metrics)
        with self.stream.active():
            history = run.finish()
            counted = run.step.contradictions
            contradicted = None if counted is None else counted.known
            self._add_contradictions(contradicted)
            if self.folder:
                state = {"module": phase.module.state_dict(), "history": history}
                self._writer.write(
                    state | {"contradicted": contradicted},
                    lambda state, folder=self.folder: folder.finish_phase(number, state),  # type: ignore[misc]
                )
        return history

    def _add_contradictions(self, counts: Tensor | None) -> None:
        """Add the counts of a phase, int32 (N,), to those of the phases before."""
        if counts is not None:
            counts = counts.to(self.job.device)
            self._contradicted = counts.clone() if self._contradicted is None else self._contradicted + counts

    def _with_contradictions(self, fitted: Fitted) -> Fitted:
        """The classifier, with the counts of all phases among its extras and the rows that they are about."""
        if self._contradicted is not None:
            fitted.extras.setdefault("row", torch.arange(len(self.job.train)))
            fitted.extras["contradicted"] = self._contradicted.cpu()
        return fitted

    def _run_epoch(self, run: PhaseRun) -> Generator[Pending | None, None, Metrics]:
        """Train one epoch; between its chunks other runs may use the process's random states."""
        self.stream.random.seed(self.job.seed, "epoch", run.number, run.epoch)
        chunks = run.run_chunks()
        item: Metrics | Pending | None = None
        try:
            while not isinstance(item, dict):
                with self._turn(run):
                    item = next(chunks)
                    # Breaks between chunks are useless on a CPU, unless another thread waits for
                    # its turn.
                    while item is None and self.stream.cuda is None and not TURN.wanted:
                        item = next(chunks)
                if not isinstance(item, dict):
                    yield item
        except DivergedError as error:
            # An earlier checkpoint may still be on its way to the folder.
            self._writer.wait()
            if self.folder:
                self.folder.record_divergence(phase=error.phase, epoch=error.epoch, step=error.step)
            raise
        return item

    @contextlib.contextmanager
    def _turn(self, run: PhaseRun) -> Iterator[None]:
        """Inside, this run's random state, stream, precision and threads are in effect."""
        if not run.draws:
            # Replays of a CUDA graph do not depend on the state of the process.
            with self.stream.on_stream():
                yield
            return
        threads = one_thread() if run.small else contextlib.nullcontext()
        with self.stream.active(), precision(run.recipe.precision), threads:
            yield

    def _checkpoint(self, run: PhaseRun) -> None:
        """Store the state of an unfinished phase, if the last checkpoint is old enough."""
        if not self.folder or time.monotonic() - self._checkpointed < CHECKPOINT_SECONDS:
            return
        folder = self.folder
        with self.stream.active():
            self._writer.write(run.state(), lambda state: folder.save_current(run.number, state))
        self._checkpointed = time.monotonic()
