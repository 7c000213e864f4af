"""Keep the weights, buffers and per-example state of all processes of a run the same."""

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
    """Synchronises a phase's module over several processes; with a single process it does nothing.

    The constructor copies the weights of the first process to all others.

    Parameters
    ----------
    module : PhaseModule
    job : Job
        Knows which buffers hold per-example state.
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
        """Copy the buffers of the first process; then give each process its own random numbers.

        Parameters
        ----------
        random : RandomState or None
            The random state of the run, which must be active. None: leave random states alone.
        phase, epoch : int
            Numbers of the phase and the epoch, on which the random numbers depend.
        """
        if not self._world.several:
            return
        broadcast(self._module.buffers())
        if random is not None and not self._world.first:
            key = (self._job.seed, "epoch", phase, epoch, "process", self._world.rank)
            own_draws(random, self._job.device, *key)

    def end_epoch(self, order: Tensor, average: MovingAverage | None, *tables: Tensor) -> None:
        """Merge per-example buffers from the process that trained each row; broadcast all others.

        Parameters
        ----------
        order : int64 tensor
            The rows that this process has trained on.
        average : MovingAverage or None
            Its copies of the buffers are synchronised in the same way.
        *tables : tensor (N, ...)
            Other state of the rows.
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
        for table in tables:
            merge_rows(table, mine)


def own_draws(state: RandomState, device: torch.device, *key: int | str) -> None:
    """Reset the active random state to one that depends on the key."""
    other = RandomState(device)
    other.seed(*key)
    with other.active():
        drawn = other.save()
    state.restore(drawn)
