"""The trainer: it owns the loop, and knows nothing of methods or objectives."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from noisegate._device import Pending, Reading, packed
from noisegate.errors import DivergedError, InputError, first_line
from noisegate.evaluation.passes import Passes, read_given
from noisegate.fitted import Fitted
from noisegate.networks.layout import channels_last_
from noisegate.training import distributed
from noisegate.training.capture import (
    WARMUP_STEPS,
    CaptureError,
    Graph,
    Lane,
    captured_step,
    compiled_networks,
    log,
    no_waiting,
    on_host,
)
from noisegate.training.checkpoint import RunFolder
from noisegate.training.job import Job
from noisegate.training.memory import memory_kept
from noisegate.training.optimizers import Optimizer, build_optimizer
from noisegate.training.phase import Batch, History, Phase, PhaseModule, Phases, Update

CHECKPOINT_SECONDS = 30.0
#: Steps that one run is given before the next one's turn comes, and such slices that a GPU has before it at most:
#: a driver whose queue is full makes the host wait, and with it every other run.
SLICE = 16
AHEAD = 4
#: Rows of a batch times weights up to which a second thread gains nothing on a CPU. Measured on a quiet one: a step
#: takes 0.57 ms by one and 0.54 by two at 3 million, 1.13 and 0.85 at 11 million.
SMALL_STEP = 2**22
Evidence = Callable[[nn.Module, Any], dict[str, float]]
#: What a run says between epochs: it was given some work (None), or there is something to wait for.
Slices = Generator[Pending | None, None, dict[str, float]]
#: Tensors of an average beside those it follows, by type and whether they are averaged.
Pairs = dict[tuple[torch.dtype, bool], tuple[list[Tensor], list[Tensor]]]


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

    Parameters
    ----------
    phase : Phase
    job : Job
    number : int
        Of the phase, from 0.
    evidence, evaluate_every
        As in `Training`.
    lane : Lane, optional
        Where the work goes; by default the current stream, eagerly.

    Notes
    -----
    Where torch.distributed is initialised with several processes, this one takes its part of every batch; see
    `noisegate.training.distributed`.
    """

    def __init__(
        self,
        phase: Phase,
        job: Job,
        number: int,
        evidence: Evidence | None,
        evaluate_every: int,
        lane: Lane | None = None,
    ) -> None:
        self.phase, self.job, self.number, self.lane = phase, job, number, lane
        self.evidence: Any = evidence
        self.evaluate_every = evaluate_every
        self.module, self.recipe = laid_out(phase, job.device), phase.recipe
        self.keep = phase.keep or self.recipe.keep
        self._check()
        self.world = distributed.world()
        rows = (
            torch.arange(len(job.train)) if phase.rows is None else distributed.from_first(phase.rows.cpu())
        )
        self.rows, self.batch_size = rows, min(self.recipe.batch_size, len(rows))
        if self.world.size <= len(rows) < self.recipe.batch_size:
            # Of fewer rows than a batch (a small fold, say) processes take as many as they can share evenly.
            self.batch_size -= self.batch_size % self.world.size
        self.part = self.world.part(self.batch_size)
        self._start_alike()
        self.steps_per_epoch = len(rows) // self.batch_size
        rates = self.recipe.learning_rates(self.steps_per_epoch)
        self.total_steps = len(rates)
        self.n_epochs = math.ceil(self.total_steps / self.steps_per_epoch)
        device = job.device
        # A capture warms up by steps that leave no trace, and may do so in the last epoch: they find a rate too.
        padded = [*rates, *[rates[-1]] * WARMUP_STEPS]
        self.rates = torch.tensor(padded, dtype=torch.float32, device=device)
        self.lr = self.rates[0].clone()
        self.updates = tuple(self.module.updates())
        self.optimizers = [build_optimizer(each.trained, self.recipe, self.lr) for each in self.updates]
        part = self.part.stop - self.part.start
        self.order = torch.zeros(self.steps_per_epoch, part, dtype=torch.int64, device=device)
        self.step_number = torch.zeros((), dtype=torch.int64, device=device)
        self.epoch_number = torch.zeros((), dtype=torch.int64, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.average = self._copy() if self.recipe.ema else None
        self.best: dict[str, Tensor] | None = None
        self.best_score, self.stale, self.epoch = -math.inf, 0, 0
        self.history: History = []
        self.program: Program | None = None
        #: Whether the next piece may draw from the global random states; replays draw from their graph's own.
        self.draws = True
        self._pairs: Pairs | None = None

    @property
    def _decided_by_validation(self) -> bool:
        return self.recipe.patience is not None or self.keep == "best"

    def _check(self) -> None:
        if self._decided_by_validation and self.job.validation is None:
            raise InputError("early stopping and keep='best' need validation rows: use data.hold_out(0.1)")
        if self.keep == "ema" and not self.recipe.ema:
            raise InputError("keep='ema' needs an ema decay in the recipe, e.g. ema=0.999")
        if self.phase.rows is not None and not len(self.phase.rows):
            raise InputError("a phase has no rows to train on")

    def _start_alike(self) -> None:
        """In a run on several processes: the first one's weights, and the names of the state of single rows."""
        self.per_example: set[str] = set()
        if self.world.several:
            distributed.broadcast([*self.module.parameters(), *self.module.buffers()])
            named = self.module.named_buffers()
            self.per_example = {name for name, buffer in named if self.job.is_per_example(buffer)}

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    @property
    def done(self) -> bool:
        """Whether all epochs are over, or patience is."""
        patience = self.recipe.patience
        return self.epoch >= self.n_epochs or (patience is not None and self.stale >= patience)

    # One update. Everything from here to `_follow` is capture-safe.

    def next_step(self, x: Tensor | None = None) -> None:
        """One update on the next rows of the epoch's order, which the device finds by its own counter."""
        place = self.step_number.remainder(self.steps_per_epoch).view(1)
        self.step(self.order.index_select(0, place).view(-1), x)

    def step(self, index: Tensor, x: Tensor | None) -> None:
        """One update on the rows `index`; their inputs are gathered here unless they were streamed in."""
        rows = self.job.train
        torch.index_select(self.rates, 0, self.step_number.view(1), out=self.lr.view(1))
        x = self.job.augment(rows.gather(index) if x is None else x, self.recipe)
        batch = Batch(x, rows.y[index], index, rows.weight[index], self.epoch_number)
        for update, optimizer in zip(self.updates, self.optimizers, strict=True):
            self.loss_sum.add_(self._update(update, optimizer, batch))
        if self.average is not None:
            self._follow(self.average)
        # Once a loss is not finite the sum never is again: this counts the steps before.
        self.good_steps.add_(self.loss_sum * 0 == 0)
        self.step_number.add_(1)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.recipe.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.job.device.type, dtype=torch.bfloat16)

    def _update(self, update: Update, optimizer: Optimizer, batch: Batch) -> Tensor:
        """Follow the gradient of one loss; returns the loss."""
        optimizer.zero_grad()
        with self._autocast(), distributed.whole_batch(self.world):
            result = update.loss(batch)
        loss, active = result if isinstance(result, tuple) else (result, None)
        loss.backward()
        if self.world.several:
            distributed.add_gradients(update.trained.parameters())
            loss, active = distributed.add_step(loss, active)
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(update.trained.parameters(), self.recipe.clip_norm, foreach=True)
        optimizer.found_inf = None if active is None else 1.0 - active.float()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def _follow(self, average: dict[str, Tensor]) -> None:
        for (_, averaged), (followers, followed) in self._paired(average).items():
            if averaged:
                torch._foreach_lerp_(followers, followed, 1.0 - self.recipe.ema)
            else:
                torch._foreach_copy_(followers, followed)

    def _paired(self, average: dict[str, Tensor]) -> Pairs:
        """The average's and the trained tensors, those of one type and treatment together: few, large kernels.

        Weights and the statistics of normalisation are averaged; what else a method keeps is copied.
        """
        if self._pairs is None:
            weights = averaged_names(self.module)
            self._pairs = {}
            for name, value in self.module.state_dict().items():
                kind = value.dtype, name in weights and value.is_floating_point()
                followers, followed = self._pairs.setdefault(kind, ([], []))
                followers.append(average[name])
                followed.append(value)
        return self._pairs

    def changing(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        counters = [self.lr, self.step_number, self.good_steps, self.loss_sum]
        averages = [] if self.average is None else list(self.average.values())
        weights = [*self.module.parameters(), *self.module.buffers()]
        moments = [tensor for optimizer in self.optimizers for tensor in optimizer.tensors()]
        return [*weights, *moments, *averages, *counters]

    # One epoch.

    def run_epoch(self) -> dict[str, float]:
        """Train one epoch, look at the validation rows, and return what was seen; random state is the caller's."""
        slices = self.slices()
        while True:
            try:
                pending = next(slices)
            except StopIteration as stop:
                return stop.value
            if pending is not None:
                pending.wait()

    def slices(self) -> Slices:
        """`run_epoch` in pieces: a GPU is given some work, then it is another run's turn."""
        clock = Clock(self.job.device)
        self.module.train()
        with precision(self.recipe.precision):
            self.module.begin_epoch(self.epoch, self.job)
        self._pairs = None  # it may have put other tensors into the module
        order = self._begin()
        if self.world.several:
            self._begin_alike()
        if self.program is None or self.program.outdated:
            with precision(self.recipe.precision):
                self.program = make_program(self)
        yield from self._train(order, self.program)
        if self.world.several:
            self._end_alike(order)
        clock.mark()
        due = self._due()
        with precision(self.recipe.precision):
            reading = self.program.look(due)
        while not reading.ready:
            yield reading
        # Ranks that draw samples when they evaluate see other numbers: the first one's decide when to stop.
        metrics = self._take(distributed.from_first(reading.read()), len(order), due)
        self.epoch += 1
        metrics |= clock.read()
        self.history.append(metrics)
        return metrics

    def _due(self) -> bool:
        """Whether this epoch's end is looked at in full; that of the last one always is."""
        past = self.epoch + 1
        return bool(self.evaluate_every) and (past % self.evaluate_every == 0 or past == self.n_epochs)

    def _begin(self) -> Tensor:
        """Shuffle; the whole order goes to the device at once. Returns it as `(steps, batch)`, on the host.

        Of several processes each has its part of every batch.
        """
        self.epoch_number.fill_(self.epoch)
        self.loss_sum.zero_()
        self.good_steps.zero_()
        steps = min(self.steps_per_epoch, self.total_steps - self.epoch * self.steps_per_epoch)
        order = self.rows[torch.randperm(len(self.rows))[: steps * self.batch_size]].view(steps, -1)
        if self.world.several:
            order = order[:, self.part].contiguous()
        if self.order.is_cuda:
            order = order.pin_memory()
        self.order[:steps].copy_(order, non_blocking=True)
        return order

    def _begin_alike(self) -> None:
        """What `begin_epoch` left behind is the first process's; from here on each one draws for its own rows."""
        distributed.broadcast(self.module.buffers())
        if self.lane is not None and not self.world.first:
            key = (self.job.seed, "epoch", self.number, self.epoch, "process", self.world.rank)
            distributed.own_draws(self.lane.random, self.job.device, *key)

    def _end_alike(self, order: Tensor) -> None:
        """Buffers, and what the moving average has of them: the state of each row is that of who saw it."""
        mine = order.reshape(-1).to(self.job.device)
        for name, buffer in self.module.named_buffers():
            averaged = None if self.average is None else self.average.get(name)
            for tensor in (buffer, averaged):
                if tensor is not None and name in self.per_example:
                    distributed.merge_rows(tensor, mine)
                elif tensor is not None:
                    distributed.broadcast([tensor])

    def _train(self, order: Tensor, program: Program) -> Iterator[Pending | None]:
        rows, given = self.job.train, deque[Pending]()
        inputs: Iterator[Tensor | None]
        if rows.resident:
            inputs, size, ahead = itertools.repeat(None, len(order)), SLICE, AHEAD
        else:
            # Inputs from the host fill the memory while they wait: there each batch is a slice.
            inputs, size, ahead = iter(rows.stream(order.unbind(0))), 1, SLICE
        for first in range(0, len(order), size):
            with precision(self.recipe.precision):
                for x in itertools.islice(inputs, size):
                    program.step(x)
            self.draws = not (program.captured and rows.resident and first + size < len(order))
            given.append(Pending(self.job.device))
            while len(given) > ahead and not given[0].ready:
                yield given[0]
            if len(given) > ahead:
                given.popleft()
            yield None

    def numbers(self, passes: Passes, due: bool) -> dict[str, Tensor]:
        """What there is to know at the end of an epoch, as 0-d tensors; capture-safe."""
        finite = torch.stack([torch.isfinite(p).all() for p in self.module.parameters()]).all()
        found = {"good": self.good_steps, "finite": finite, "step": self.step_number}
        found |= {"loss": self.loss_sum, "lr": self.lr}
        rows = self.job.validation
        if rows is not None and (due or self.evaluate_every <= 1 or self._decided_by_validation):
            accuracy, log_likelihood = passes("validation", rows, read_given(rows.y)).mean(0)
            found |= {"validation_accuracy": accuracy, "validation_log_likelihood": log_likelihood}
        measure = getattr(self.evidence, "measure", None)
        return found | measure(passes) if measure is not None and due else found

    def _take(self, found: dict[str, float], steps: int, due: bool) -> dict[str, float]:
        good, finite, last = (int(found.pop(name)) for name in ("good", "finite", "step"))
        if good < steps or not finite:
            raise DivergedError(self.number, self.epoch, last - steps + min(good, steps - 1))
        metrics = {**found, "loss": found["loss"] / steps}
        score = metrics.get(f"validation_{self.recipe.monitor}")
        if score is not None:
            self._remember(score)
        if due and self.evidence is not None and not hasattr(self.evidence, "measure"):
            with self.kept_view():
                metrics |= self.evidence(*self.module.predictor())
        return metrics

    @contextlib.contextmanager
    def kept_view(self) -> Iterator[None]:
        """Inside, the module shows the averaged weights where those are what the phase will keep."""
        if self.keep != "ema" or self.average is None:
            yield
            return
        pairs = self._paired(self.average).values()
        trained = [[value.clone() for value in followed] for _, followed in pairs]
        self._show([followers for followers, _ in pairs])
        try:
            yield
        finally:
            self._show(trained)

    @torch.no_grad()
    def _show(self, values: list[list[Tensor]]) -> None:
        if self.average is not None:
            for (_, followed), value in zip(self._paired(self.average).values(), values, strict=True):
                torch._foreach_copy_(followed, value)

    def _remember(self, score: float) -> None:
        if score > self.best_score:
            self.best_score, self.stale = score, 0
            if self.keep == "best":
                self.best = self._copy()
        else:
            self.stale += 1

    def finish(self) -> History:
        """Put the kept weights into the module, and let go of what only training needed."""
        kept = {"last": None, "best": self.best, "ema": self.average}[self.keep]
        if kept is not None:
            self.module.load_state_dict(kept)
        self.module.eval()
        if self.job.device.type == "cuda":
            for optimizer in self.optimizers:
                optimizer.zero_grad()
        return self.history

    # Going on after a kill.

    def state(self) -> dict[str, Any]:
        """Everything that changes during the phase, as a tree of tensors and plain values."""
        return {
            "module": self.module.state_dict(),
            "optimizer": [of_one for optimizer in self.optimizers for of_one in optimizer.state],
            "average": self.average,
            "best": self.best,
            "counters": [self.best_score if math.isfinite(self.best_score) else None, self.stale, self.epoch],
            "step": self.step_number,
            "history": list(self.history),
        }

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.module.load_state_dict(state["module"])
        stored = iter(state["optimizer"])
        for optimizer in self.optimizers:
            optimizer.load(list(itertools.islice(stored, len(optimizer.state))))
        self.average, self.best = (self._laid_out(state[name]) for name in ("average", "best"))
        self._pairs = self.program = None
        score, self.stale, self.epoch = state["counters"]
        self.best_score = -math.inf if score is None else score
        self.step_number.copy_(state["step"])
        self.history = state["history"]

    def _laid_out(self, weights: dict[str, Tensor] | None) -> dict[str, Tensor] | None:
        """Stored weights on the device, in the memory layout of the module's."""
        if weights is None:
            return None
        own = self.module.state_dict()
        return {name: torch.empty_like(own[name]).copy_(value) for name, value in weights.items()}


class Clock:
    """Seconds of an epoch's training and of all of it; on a GPU by its own clock for the training."""

    def __init__(self, device: torch.device) -> None:
        self._started, self._trained = time.perf_counter(), 0.0
        self._events = (
            [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else []
        )
        if self._events:
            self._events[0].record()

    def mark(self) -> None:
        """The last update was made, or handed to the GPU."""
        self._trained = time.perf_counter() - self._started
        if self._events:
            self._events[1].record()

    def read(self) -> dict[str, float]:
        """`train_seconds` and `seconds`; after the epoch's numbers were read."""
        trained = self._events[0].elapsed_time(self._events[1]) / 1e3 if self._events else self._trained
        return {"train_seconds": trained, "seconds": time.perf_counter() - self._started}


class Program:
    """How a phase's steps and its looks at the end of an epoch are executed: eagerly, as they are written."""

    outdated = False
    captured = False

    def __init__(self, run: PhaseRun) -> None:
        self.run = run

    def step(self, x: Tensor | None) -> None:
        """The next update; `x` are its inputs on the host if the rows are streamed."""
        device = self.run.job.device
        self.run.next_step(None if x is None else x.to(device, non_blocking=True))

    def look(self, due: bool) -> Reading:
        """Enqueue the end of an epoch; `due`: with evidence."""
        passes = Passes(*self.run.module.predictor())
        with self.run.kept_view(), passes.evaluating():
            return Reading.of(self.run.numbers(passes, due), self.run.job.device)


class CapturedProgram(Program):
    """The same as CUDA graphs: one for the step, one for a batch of each pass, one for the epoch's numbers.

    Parameters
    ----------
    run : PhaseRun
        Its lane is active, its first epoch has begun.
    compiled : bool
        Compile the networks first.
    """

    captured = True

    def __init__(self, run: PhaseRun, lane: Lane, compiled: bool) -> None:
        super().__init__(run)
        rows, self._pool, self._random = run.job.train, torch.cuda.graph_pool_handle(), lane.random
        self._x: Tensor | None = None
        if not rows.resident:
            dtype = rows.read(run.rows[:1]).dtype
            self._x = torch.zeros(run.batch_size, *rows.shape, dtype=dtype, device=rows.device)
        context = compiled_networks(run.module) if compiled else contextlib.nullcontext()
        with context:
            self._graph = captured_step(
                lambda: run.next_step(self._x), run.changing(), lane.random, pool=self._pool
            )
        self._looks: dict[bool, CapturedLook | None] = {}
        self._addresses = self._read_addresses()

    def _read_addresses(self) -> list[int]:
        module = self.run.module
        return [t.data_ptr() for t in (*module.parameters(), *module.buffers())]

    @property
    def outdated(self) -> bool:  # type: ignore[override]
        """Whether somebody has put other tensors into the module since: the graphs would not see them."""
        return self._read_addresses() != self._addresses

    def step(self, x: Tensor | None) -> None:
        if x is not None and self._x is not None:
            self._x.copy_(x, non_blocking=True)
        self._graph()

    def look(self, due: bool) -> Reading:
        if due not in self._looks:
            self._looks[due] = self._captured_look(due)
        captured = self._looks[due]
        return super().look(due) if captured is None else captured()

    def _captured_look(self, due: bool) -> CapturedLook | None:
        first, second = self.run.module.predictor(), self.run.module.predictor()
        if any(a is not b for a, b in zip(first, second, strict=True)):
            return None  # it makes a new one each time, so a graph would go on looking at the old one
        rows, evidence = [self.run.job.validation], self.run.evidence
        if due and hasattr(evidence, "measure"):
            rows += [each for part, each in evidence.rows.items() if part in evidence.parts]
        if not all(each is None or each.resident for each in rows):
            return None
        try:
            look = CapturedLook(self.run, due, Passes(*first, mode="once"))
        except Exception as error:
            log.warning("evaluating eagerly, because it cannot be captured (%s)", first_line(error))
            return None
        drawn = self._random.save()
        try:
            look.capture(self._pool)
        except Exception as error:
            # The random state may still believe that it is being captured, and the step's graph draws from it.
            self._random.renew(drawn)
            self.run.program = Program(self.run)
            log.warning("training eagerly from here on, because capture failed (%s)", first_line(error))
            return None
        return look


class CapturedLook:
    """The end of an epoch as graphs.

    Parameters
    ----------
    run : PhaseRun
    due : bool
        With evidence.
    passes : Passes
        Fresh, in mode "once". They are tried out when this is made; `capture` comes next.
    """

    def __init__(self, run: PhaseRun, due: bool, passes: Passes) -> None:
        self._run, self._due, self._passes = run, due, passes
        with passes.evaluating():
            self._names = tuple(run.numbers(passes, due))
            with no_waiting():
                run.numbers(passes, due)
        self._vector = torch.zeros(len(self._names), dtype=torch.float64, device=run.job.device)

    def capture(self, pool: Any) -> None:
        """Make the graphs, in this memory pool."""
        run, passes = self._run, self._passes
        with passes.evaluating():
            for each in passes.named.values():
                each.rewind()
                each.replay = Graph(each.batch, pool)
            passes.mode = "stored"
            self._reduce = Graph(lambda: self._store(run.numbers(passes, self._due)), pool)

    def _store(self, numbers: dict[str, Tensor]) -> None:
        self._vector.copy_(packed(numbers, self._vector.device))

    def __call__(self) -> Reading:
        with self._run.kept_view():
            for each in self._passes.named.values():
                each.run()
            self._reduce()
        return Reading(self._names, self._vector)


def make_program(run: PhaseRun) -> Program:
    """The fastest of the ways to execute a phase that works; where the best one does not, a line says why."""
    lane = run.lane
    if lane is None:
        return Program(run)
    images = run.total_steps * run.batch_size
    ways = lane.choices(run.module, images, run.recipe.precision)
    for way, next_way in itertools.pairwise(ways):
        try:
            return CapturedProgram(run, lane, compiled=way == "compiled")
        except CaptureError as error:
            log.warning("phase %r runs %s, not %s, because %s", run.phase.name, next_way, way, error)
    return Program(run)


def laid_out(phase: Phase, device: torch.device) -> PhaseModule:
    """A phase's module on its device, in the layout in which its steps are fast."""
    module = phase.module.to(device)
    if device.type == "cpu" or phase.recipe.precision == "bf16":
        channels_last_(module)
    return module


def averaged_names(module: nn.Module) -> set[str]:
    """What a moving average is taken of: parameters, and the statistics of normalisation."""
    names = {name for name, _ in module.named_parameters()}
    for prefix, layer in module.named_modules():
        if isinstance(layer, _NormBase):
            names |= {f"{prefix}.{name}" if prefix else name for name, _ in layer.named_buffers()}
    return names


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """How convolutions and matrix products are done: fp32 in full and in a fixed order, the others fast.

    So fp32 is repeatable on a GPU, and small convolutions pay for it: a LeNet's step takes 1.6 times as long.
    """
    cudnn: Any = torch.backends.cudnn
    exact, before = name == "fp32", (cudnn.deterministic, cudnn.benchmark)
    with _tensor_float(not exact):
        cudnn.deterministic = before[0] or exact
        cudnn.benchmark = not cudnn.deterministic
        try:
            yield
        finally:
            cudnn.deterministic, cudnn.benchmark = before


def few_threads(run: PhaseRun) -> contextlib.AbstractContextManager[None]:
    """Inside, a CPU trains small networks on vectors by one thread.

    A second one would gain nothing there; and where its core is busy, all others wait for it at every operation:
    a fit of half a second was seen to take half a minute.
    """
    weights = sum(p.numel() for p in run.module.parameters())
    small = len(run.job.train.shape) == 1 and run.batch_size * weights <= SMALL_STEP
    return one_thread() if small else contextlib.nullcontext()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes by one thread: sums keep their order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _tensor_float(allowed: bool) -> Iterator[None]:
    """Inside, TF32 is used or not; by the one of torch's two sets of switches that the caller has used."""
    backends: Any = torch.backends
    try:
        before = torch.get_float32_matmul_precision(), backends.cudnn.allow_tf32
    except RuntimeError:  # torch refuses a mix of both
        switches = backends.cuda.matmul, backends.cudnn.conv
        names = [switch.fp32_precision for switch in switches]
        for switch in switches:
            switch.fp32_precision = "tf32" if allowed else "ieee"
        try:
            yield
        finally:
            for switch, given in zip(switches, names, strict=True):
                switch.fp32_precision = given
        return
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        backends.cudnn.allow_tf32 = before[1]


class Training:
    """One run: iterate over it to train an epoch at a time; `fitted` is there at the end.

    It has a random state and, on a GPU, a stream of its own, so runs can be interleaved in one thread and the
    caller's random numbers stay what they were.

    Parameters
    ----------
    phases : function (job) -> generator of phases
        A method's `phases`.
    job : Job
    folder : RunFolder, optional
        Where checkpoints go and are resumed from.
    evidence : function (network, objective) -> dict, optional
        Looks at clean labels; its numbers go to the history and nowhere else. One with a method `measure`, like
        `CleanEvidence`, is looked at without waiting for the GPU.
    evaluate_every : int
        Epochs between two looks at clean labels, the last epoch always among them; 0: none. If it is more than 1,
        the validation rows wait for them too, unless the recipe decides by these (patience, keep="best").
    execution : {"auto", "eager", "captured", "compiled"}
        See `noisegate.training.capture.Lane`.
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
        self.lane = Lane(job.device, execution)
        self.histories: list[History] = []
        self.fitted: Fitted | None = None
        self._saved = time.monotonic()
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._held = contextlib.ExitStack()

    def __iter__(self) -> Iterator[Epoch]:
        for item in self.slices():
            if isinstance(item, Epoch):
                yield item
            elif item is not None:
                item.wait()

    def slices(self) -> Iterator[Epoch | Pending | None]:
        """The run in pieces.

        After each piece it says what came of it: an epoch's numbers; None, if the GPU was given some work and there
        is more; or what it waits for, and should not be asked again before that is ready.
        """
        self._refuse_diverged()
        self.lane.open()
        if self.lane.stream is None:
            self._held.enter_context(memory_kept())
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
            result = yield from self._phase(phase, number)
            self.histories.append(result)
            number += 1
        self.close()

    def close(self) -> None:
        """Wait until the last checkpoint is on disk; what the caller's stream gets next comes after this run."""
        try:
            # Where the GPU is lost already, that is not what the caller should hear of.
            with contextlib.suppress(RuntimeError):
                self.lane.close()
            self._written()
        finally:
            self._held.close()
            if self._writer is not None:
                self._writer.shutdown()
                self._writer = None

    @contextlib.contextmanager
    def _seeded(self, *key: int | str) -> Iterator[None]:
        self.lane.random.seed(self.job.seed, *key)
        with self.lane.active(), precision(self.job.recipe.precision):
            yield

    def _refuse_diverged(self) -> None:
        where = distributed.from_first(self.folder.divergence if self.folder else None)
        if where is not None:
            raise DivergedError(**where)

    def _phase(self, phase: Phase, number: int) -> Generator[Epoch | Pending | None, None, History]:
        # Of several processes the first one has the folder, and tells the others what is in it.
        stored = distributed.from_first(self.folder.finished_phase(number) if self.folder else None)
        if stored is not None:
            with self.lane.active():
                laid_out(phase, self.job.device).load_state_dict(stored["module"])
            phase.module.eval()
            return stored["history"]
        with self._seeded("phase", number, "set-up"):
            run = PhaseRun(phase, self.job, number, self.evidence, self.evaluate_every, self.lane)
            state = distributed.from_first(self.folder.current(number) if self.folder else None)
            if state is not None:
                run.load(state)
        try:
            while not run.done:
                yield (yield from self._epoch(run))
        finally:
            # Run and program hold each other: a run that ended early would keep its graphs' memory.
            run.program = None
        with self.lane.active():
            history = run.finish()
            if self.folder:
                state = {"module": phase.module.state_dict(), "history": history}
                self._store(state, functools.partial(self.folder.finish_phase, number))
        return history

    def _epoch(self, run: PhaseRun) -> Generator[Pending | None, None, Epoch]:
        self.lane.random.seed(self.job.seed, "epoch", run.number, run.epoch)
        try:
            metrics = yield from self._advanced(run)
        except DivergedError as error:
            self._written()
            if self.folder:
                self.folder.record_divergence(phase=error.phase, epoch=error.epoch, step=error.step)
            raise
        if self.folder and time.monotonic() - self._saved >= CHECKPOINT_SECONDS:
            with self.lane.active():
                self._store(run.state(), functools.partial(self.folder.save_current, run.number))
            self._saved = time.monotonic()
        return Epoch(run.number, run.phase.name, run.epoch, run.n_epochs, metrics)

    def _advanced(self, run: PhaseRun) -> Slices:
        """One epoch; between its pieces others may use the global random state and their own streams."""
        if self.lane.stream is None:
            with self.lane.active(), few_threads(run):
                return run.run_epoch()
        slices = run.slices()
        while True:
            with self.lane.active() if run.draws else self.lane.on_stream():
                try:
                    pending = next(slices)
                except StopIteration as stop:
                    return stop.value
            yield pending

    def _store(self, state: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
        """Write a state; on a GPU a thread does it, once the copies have arrived in pinned memory."""
        if self.lane.stream is None:
            write(state)
            return
        self._written()
        copied, arrived = on_host(state), Pending(self.job.device)

        def later() -> None:
            arrived.wait()
            write(copied)

        self._writer = self._writer or ThreadPoolExecutor(max_workers=1)
        self._writing = self._writer.submit(later)

    def _written(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
