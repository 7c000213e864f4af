"""One training step, which a CUDA graph can capture."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.training import distributed
from noisegate.training.averaging import MovingAverage
from noisegate.training.contradictions import contradictions
from noisegate.training.distributed import World
from noisegate.training.job import Job
from noisegate.training.optimizers import build_optimizer
from noisegate.training.phase import Batch, PhaseModule
from noisegate.training.recipe import Recipe

#: Number of steps run before a capture and then undone. They may go beyond the last step of a
#: phase.
WARMUP_STEPS = 3


class Step:
    """One training step per call: gather a batch, compute the losses, update the weights.

    A step is capture-safe: everything that differs from step to step (row numbers, learning rate,
    counters) is read from and written to tensors of fixed shape.

    Parameters
    ----------
    module : PhaseModule
        What is trained.
    job : Job
        Provides the training rows and the augmentation.
    recipe : Recipe
    steps_per_epoch : int
    rows_per_step : int
        Batch size in this process.
    world : World
        The processes that share each batch.

    Attributes
    ----------
    order : int64 tensor (steps_per_epoch, rows_per_step)
        Row numbers of the epoch's batches.
    number : int64 tensor ()
        Number of steps so far in the phase.
    epoch : int64 tensor ()
        Number of the epoch.
    loss_sum : float64 tensor ()
        Sum of the losses of the epoch's steps.
    good : int64 tensor ()
        Number of the epoch's steps before the first loss that was not finite.
    average : MovingAverage or None
        The moving average of the weights, if the recipe has one.
    contradictions : Contradictions or None
        How often the network contradicted each row's label; None for maps.
    """

    def __init__(
        self,
        module: PhaseModule,
        job: Job,
        recipe: Recipe,
        *,
        steps_per_epoch: int,
        rows_per_step: int,
        world: World,
    ) -> None:
        self.module, self.job, self.recipe, self.world = module, job, recipe, world
        self.steps_per_epoch, device = steps_per_epoch, job.device
        rates = recipe.learning_rates(steps_per_epoch)
        self.total = len(rates)
        # The warm-up of a capture in the last epoch reads rates beyond the last step.
        padded = [*rates, *[rates[-1]] * WARMUP_STEPS]
        self.rates = torch.tensor(padded, dtype=torch.float32, device=device)
        self.lr = self.rates[0].clone()
        self.updates = tuple(module.updates())
        self.optimizers = [build_optimizer(each.trained, recipe, self.lr) for each in self.updates]
        self.order = torch.zeros(steps_per_epoch, rows_per_step, dtype=torch.int64, device=device)
        self.number, self.epoch, self.good = (
            torch.zeros((), dtype=torch.int64, device=device) for _ in range(3)
        )
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.average = MovingAverage(module, recipe.ema) if recipe.ema else None
        self.contradictions = contradictions(module, job)

    def __call__(self, x: Tensor | None = None) -> None:
        """Train on the next rows of `order`; a counter on the device finds them.

        Parameters
        ----------
        x : tensor, default=None
            Inputs of those rows, on any device. None: gather them from the resident rows.
        """
        place = self.number.remainder(self.steps_per_epoch).view(1)
        self.on(self.order.index_select(0, place).view(-1), x)

    def on(self, index: Tensor, x: Tensor | None = None) -> None:
        """Train on the rows `index`; see `__call__`."""
        rows = self.job.train
        torch.index_select(self.rates, 0, self.number.view(1), out=self.lr.view(1))
        inputs = rows.gather(index) if x is None else x.to(self.job.device, non_blocking=True)
        y = rows.y[index]
        if rows.maps:
            inputs, y = self.job.augment_maps(inputs, y, self.recipe)
        else:
            inputs = self.job.augment(inputs, self.recipe)
        batch = Batch(inputs, y, index, rows.weight[index], self.epoch)
        for update, optimizer in zip(self.updates, self.optimizers, strict=True):
            optimizer.zero_grad()
            with self._autocast(), distributed.whole_batch(self.world):
                result = update.loss(batch)
            loss, active = result if isinstance(result, tuple) else (result, None)
            loss.backward()
            if self.world.several:
                distributed.add_gradients(update.trained.parameters())
                loss, active = distributed.add_step(loss, active)
            if self.recipe.clip_norm is not None:
                parameters = update.trained.parameters()
                nn.utils.clip_grad_norm_(parameters, self.recipe.clip_norm, foreach=True)
            # As with gradient scalers, found_inf = 1 makes the fused kernels skip the update.
            optimizer.found_inf = None if active is None else 1.0 - active.float()
            optimizer.step()
            self.loss_sum.add_(loss.detach())
        if self.contradictions is not None:
            self.contradictions.follow(index)
        if self.average is not None:
            self.average.follow()
        # Once a loss is not finite, neither is the sum: 0 * inf is NaN. So this counts the steps
        # before.
        self.good.add_(self.loss_sum * 0 == 0)
        self.number.add_(1)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.recipe.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.job.device.type, dtype=torch.bfloat16)

    def begin_epoch(self, epoch: int, order: Tensor) -> None:
        """Set the epoch's row numbers, `(steps, rows_per_step)`, and reset its sums."""
        self.epoch.fill_(epoch)
        self.loss_sum.zero_()
        self.good.zero_()
        self.order[: len(order)].copy_(order, non_blocking=True)

    def changing(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        weights = [*self.module.parameters(), *self.module.buffers()]
        moments = [tensor for optimizer in self.optimizers for tensor in optimizer.tensors()]
        averages = [] if self.average is None else list(self.average.values.values())
        counts = [] if self.contradictions is None else [self.contradictions.predicted]
        return [*weights, *moments, *averages, *counts, self.lr, self.number, self.good, self.loss_sum]

    def release(self) -> None:
        """Free the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """Everything that changes from step to step, for a checkpoint."""
        return {
            "module": self.module.state_dict(),
            "optimizer": [of_one for optimizer in self.optimizers for of_one in optimizer.state],
            "average": None if self.average is None else self.average.values,
            "step": self.number,
            "contradictions": None if self.contradictions is None else self.contradictions.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.module.load_state_dict(state["module"])
        stored = iter(state["optimizer"])
        for optimizer in self.optimizers:
            optimizer.load(list(itertools.islice(stored, len(optimizer.state))))
        if self.average is not None:
            self.average.load(state["average"])
        self.number.copy_(state["step"])
        # A checkpoint of 0.1.0 has no counts.
        if self.contradictions is not None and state.get("contradictions") is not None:
            self.contradictions.load(state["contradictions"])
