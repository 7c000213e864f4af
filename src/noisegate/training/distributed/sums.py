"""Sums and broadcasts over the processes, in every step and at the end of an epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from noisegate.objectives.base import added_up
from noisegate.training.distributed.processes import World


@contextlib.contextmanager
def whole_batch(here: World) -> Iterator[None]:
    """Inside, `weighted_mean` divides by the sum of the weights over all processes."""
    if not here.several:
        yield
        return
    with added_up(_total):
        yield


def _total(part: Tensor) -> Tensor:
    total = part.detach().clone()
    dist.all_reduce(total)
    return total


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients over all processes, in one message per dtype."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for p in parameters:
        if p.grad is not None:
            groups.setdefault(p.grad.dtype, []).append(p.grad)
    for gradients in groups.values():
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat)
        for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(total.view(gradient.shape))


def add_step(loss: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Sum the loss over all processes; an update is active if it is in any process."""
    values = torch.stack([loss.detach().double(), (loss.new_ones(()) if active is None else active).double()])
    dist.all_reduce(values)
    return values[0], None if active is None else values[1] > 0


@torch.no_grad()
def broadcast(tensors: Iterable[Tensor]) -> None:
    """Copy the first process's values to all processes, in place."""
    for tensor in tensors:
        if tensor.numel():
            # A contiguous copy: not every backend accepts other memory layouts.
            plain = tensor.detach().clone(memory_format=torch.contiguous_format)
            dist.broadcast(plain, src=0)
            tensor.copy_(plain)


@torch.no_grad()
def merge_rows(table: Tensor, mine: Tensor) -> None:
    """Merge a table `(N, ...)` over processes, in place.

    Parameters
    ----------
    table : tensor (N, ...)
    mine : int64 tensor
        Numbers of the rows that this process has written. Rows that several processes have written
        get their mean; rows that none has written stay.
    """
    count = table.new_zeros(len(table), *[1] * (table.dim() - 1))
    count[mine] = 1
    merged = torch.zeros_like(table)
    merged[mine] = table[mine]
    dist.all_reduce(count)
    dist.all_reduce(merged)
    table.copy_(torch.where(count > 0, merged / count.clamp_min(1), table))
