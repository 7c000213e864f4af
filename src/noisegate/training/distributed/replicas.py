"""Keeping the processes of a run alike: their weights, their buffers, the state of single rows."""

from __future__ import annotations

import torch
from torch import Tensor

from noisegate.training.averaging import MovingAverage
from noisegate.training.distributed.processes import World
from noisegate.training.distributed.sums import broadcast, merge_rows
from noisegate.training.job import Job
from noisegate.training.phase import PhaseModule
from noisegate.training.randomness import RandomState


class Replicas:
    """A phase's module in each of several processes; in a single process nothing here does anything.

    Making it gives every process the weights of the first one.

    Parameters
    ----------
    module : PhaseModule
    job : Job
    world : World
    """

    def __init__(self, module: PhaseModule, job: Job, world: World) -> None:
        self._module, self._job, self._world = module, job, world
        self._per_example: set[str] = set()
        if world.several:
            broadcast([*module.parameters(), *module.buffers()])
            named = module.named_buffers()
            self._per_example = {name for name, buffer in named if job.is_per_example(buffer)}

    def begin_epoch(self, random: RandomState | None, phase: int, epoch: int) -> None:
        """Take over what the first process's `begin_epoch` left; then draw for the own rows only.

        Parameters
        ----------
        random : RandomState, optional
            Active.
        """
        if not self._world.several:
            return
        broadcast(self._module.buffers())
        if random is not None and not self._world.first:
            key = (self._job.seed, "epoch", phase, epoch, "process", self._world.rank)
            own_draws(random, self._job.device, *key)

    def end_epoch(self, order: Tensor, average: MovingAverage | None) -> None:
        """Merge per-example buffers from the process that trained each row; broadcast all others.

        Parameters
        ----------
        order : int64 tensor
            The rows that this process has trained on.
        average : MovingAverage, optional
            Its copies of the buffers are treated alike.
        """
        if not self._world.several:
            return
        mine = order.reshape(-1).to(self._job.device)
        for name, buffer in self._module.named_buffers():
            averaged = None if average is None else average.values.get(name)
            for tensor in (buffer, averaged):
                if tensor is not None and name in self._per_example:
                    merge_rows(tensor, mine)
                elif tensor is not None:
                    broadcast([tensor])


def own_draws(state: RandomState, device: torch.device, *key: int | str) -> None:
    """Go on with random numbers that follow from the key. Inside `state.active()`."""
    other = RandomState(device)
    other.seed(*key)
    with other.active():
        drawn = other.save()
    state.restore(drawn)
