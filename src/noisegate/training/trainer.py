"""The trainer: it drives a generator of phases, and knows nothing of methods or objectives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

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

#: Seconds between two checkpoints of a phase under way.
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Epoch:
    """What is told after each epoch: where the run is, and the numbers of the epoch."""

    phase: int
    phase_name: str
    epoch: int
    n_epochs: int
    metrics: Metrics


class Trainer:
    """One run: iterate over it to train an epoch at a time; `fitted` is there at the end.

    It has a random state and, on a GPU, a stream of its own, so runs can be interleaved in one thread,
    or in several, and the caller's random states stay what they were.

    Parameters
    ----------
    phases : function (job) -> generator of phases
        A method's `phases`.
    job : Job
    folder : RunFolder, optional
        Where checkpoints go and are resumed from.
    evidence : Evidence, optional
        What is measured on clean labels; its numbers go to the history and nowhere else.
    evaluate_every : int, default=1
        Epochs between two evaluations with evidence, the last epoch always among them; 0: none. If it
        is more than 1, the validation rows wait for them too, unless the recipe decides by these
        (patience, keep="best").
    execution : {"auto", "eager", "captured", "compiled"}, default="auto"
        See `noisegate.training.stream.ExecutionStream`.

    Attributes
    ----------
    histories : list of list of dict
        One list a phase, one dict an epoch.
    fitted : Fitted or None
        What the generator returned.
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
        self._checkpointed = time.monotonic()
        self._writer = CheckpointWriter(job.device)

    def __iter__(self) -> Iterator[Epoch]:
        return drain(self.run_chunks())

    def run_chunks(self) -> Iterator[Epoch | Pending | None]:
        """The run in chunks of work, between which other runs may work in the same thread.

        Yields
        ------
        The numbers of an epoch; None, where a GPU was given some work and there is more to do; or what
        the run waits for: it should not be asked for more before that is ready.
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
                self.fitted = stop.value
                break
            result = yield from self._run_phase(phase, number)
            self.histories.append(result)
            number += 1
        self.close()

    def close(self) -> None:
        """Wait until the last checkpoint is on disk; what the caller's stream gets next comes after this run."""
        try:
            # Where the GPU is lost already, that is not what the caller should hear of.
            with contextlib.suppress(RuntimeError):
                self.stream.close()
        finally:
            self._writer.close()

    @contextlib.contextmanager
    def _seeded(self, *key: int | str) -> Iterator[None]:
        self.stream.random.seed(self.job.seed, *key)
        with self.stream.active(), precision(self.job.recipe.precision):
            yield

    def _refuse_diverged(self) -> None:
        where = distributed.from_first(self.folder.divergence if self.folder else None)
        if where is not None:
            raise DivergedError(**where)

    def _run_phase(self, phase: Phase, number: int) -> Generator[Epoch | Pending | None, None, History]:
        """Train a phase, or load what it had come to; returns its history."""
        # Of several processes the first one has the folder, and tells the others what is in it.
        stored = distributed.from_first(self.folder.finished_phase(number) if self.folder else None)
        if stored is not None:
            with self.stream.active():
                to_device(phase, self.job.device).load_state_dict(stored["module"])
            phase.module.eval()
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
            if self.folder:
                self._writer.write(
                    {"module": phase.module.state_dict(), "history": history},
                    lambda state, folder=self.folder: folder.finish_phase(number, state),  # type: ignore[misc]
                )
        return history

    def _run_epoch(self, run: PhaseRun) -> Generator[Pending | None, None, Metrics]:
        """One epoch; between its chunks others may use the process's random states and their own streams."""
        self.stream.random.seed(self.job.seed, "epoch", run.number, run.epoch)
        chunks = run.run_chunks()
        item: Metrics | Pending | None = None
        try:
            while not isinstance(item, dict):
                with self._turn(run):
                    item = next(chunks)
                    # A CPU has no use for the breaks, unless another thread waits for its turn.
                    while item is None and self.stream.cuda is None and not TURN.wanted:
                        item = next(chunks)
                if not isinstance(item, dict):
                    yield item
        except DivergedError as error:
            self._writer.wait()
            if self.folder:
                self.folder.record_divergence(phase=error.phase, epoch=error.epoch, step=error.step)
            raise
        return item

    @contextlib.contextmanager
    def _turn(self, run: PhaseRun) -> Iterator[None]:
        """Inside, this run works: its random state, stream, precision and threads are in use."""
        if not run.draws:
            # Nothing but replays: they read no state of the process.
            with self.stream.on_stream():
                yield
            return
        threads = one_thread() if run.small else contextlib.nullcontext()
        with self.stream.active(), precision(run.recipe.precision), threads:
            yield

    def _checkpoint(self, run: PhaseRun) -> None:
        """Store the state of a phase under way, if the last time is long enough ago."""
        if not self.folder or time.monotonic() - self._checkpointed < CHECKPOINT_SECONDS:
            return
        folder = self.folder
        with self.stream.active():
            self._writer.write(run.state(), lambda state: folder.save_current(run.number, state))
        self._checkpointed = time.monotonic()
