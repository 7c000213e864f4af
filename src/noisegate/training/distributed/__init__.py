"""One run on several GPUs or machines: every process takes its part of every batch.

Where torch.distributed is initialised with W > 1 processes, a run is spread over them; nothing here makes a
difference otherwise. Every process has all the data, the same seed and the same shuffled order, and the batch of
the recipe is the batch of all processes together: process r takes the r-th of W equal parts. A run with W processes
is the same run as with one: the same order, the same batches, as many updates, and, where a network looks at each
row by itself, the same losses and weights up to rounding. All processes must make the same calls.

What adds up over processes, and what is each process's own:

- `weighted_mean` divides by the weights of the whole batch, so the losses of the parts add up to the loss of the
  batch; gradients are added before they are clipped. A loss must be a sum of such means: a term that is something
  else would count W times. A method that has one says so (`Method.why_one_process`) and is refused.
- Small-loss selection (co-teaching, causalnl) happens within each process's part: of each of the W parts the share
  R(e) with the smallest losses is kept, in place of the share R(e) of the whole batch. Where the losses are spread
  evenly that is nearly the same; the smaller the parts, the more it differs (of 8 rows, R(e) = 0.8 keeps 6, not
  6.4). MentorNet's threshold follows the quantile of each part; at the end of an epoch the first process's goes on.
  Mixup mixes rows of one part.
- Random numbers that decide the order, and all that is drawn between epochs and phases, are the same everywhere.
  Augmentation, dropout and Monte-Carlo samples are drawn by each process for its rows, from seed, phase, epoch and
  the number of the process.
- A phase with fewer rows than a batch takes one batch of all of them, less what cannot be split evenly.
- Batch normalisation sees one part, so it depends on W. Its running statistics, and every other buffer, are those
  of the first process from the end of an epoch on.
- State for every row (`Job.per_example`) is written by the process that saw the row; at the end of an epoch it is
  brought together. Rows that an epoch repeats have the mean of what several processes wrote.
- Every process evaluates everything; the first one's numbers count, and only it writes and prints.
- Steps run eagerly: whether NCCL's operations can be captured in a CUDA graph is not tested.
"""

from __future__ import annotations

import torch.distributed as _dist

from noisegate.training.distributed.processes import World, from_first, on_first, world
from noisegate.training.distributed.starting import (
    ENVIRONMENT,
    check_devices,
    from_environment,
    launch,
    leave_together,
    started_by_torchrun,
    uses_gpus,
)
from noisegate.training.distributed.sums import add_gradients, add_step, broadcast, merge_rows, whole_batch

if _dist.is_available():
    # Its functions have for a default the group of all processes as it is when they are defined. Torch imports it
    # at an optimiser's first step: the group would then outlive its end, and a thread of gloo's that lets go of a
    # tensor while Python shuts down ends the process by an abort.
    import torch.distributed.nn.functional  # noqa: F401

__all__ = [
    "ENVIRONMENT",
    "World",
    "add_gradients",
    "add_step",
    "broadcast",
    "check_devices",
    "from_environment",
    "from_first",
    "launch",
    "leave_together",
    "merge_rows",
    "on_first",
    "started_by_torchrun",
    "uses_gpus",
    "whole_batch",
    "world",
]
