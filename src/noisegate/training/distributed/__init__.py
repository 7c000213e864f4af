"""One run on several GPUs or machines: each process trains on its part of every batch.

If torch.distributed is initialised with W > 1 processes, a run is spread over them; otherwise this
package has no effect. Every process has all the data, the same seed and the same shuffled order.
The recipe's batch size is that of all processes together: process r takes the r-th of W equal
parts. A run on W processes has the same order, batches and number of updates as on one, and, if the
network treats each row independently, the same losses and weights up to rounding. All processes
must make the same calls.

What is combined over processes, and what is not:

- `weighted_mean` divides by the sum of weights of the whole batch, so that the losses of the parts
  add up to the loss of the batch. Gradients are summed before they are clipped. So a loss must be a
  sum of such means: any other term would count W times. A method with such a term declares it
  (`Method.why_one_process`) and is refused.
- Small-loss selection (co-teaching, causalnl) happens within each part: the fraction R(e) of rows
  with the smallest losses is kept in each of the W parts, not in the whole batch. The difference is
  small if losses are spread evenly over parts, and grows as the parts shrink (of 8 rows, R(e) = 0.8
  keeps 6, not 6.4). MentorNet's threshold follows the quantile of each part; after each epoch all
  processes take over that of the first. Mixup mixes rows of one part.
- Random numbers that decide the order, and all those drawn between epochs and phases, are the same
  in all processes. Augmentation, dropout and Monte-Carlo samples are drawn by each process for its
  own rows, and depend on seed, phase, epoch and rank.
- A phase with fewer rows than a batch trains on one batch of all rows, less a remainder that cannot
  be split evenly.
- Batch normalisation uses the statistics of one part, so its results depend on W. After each epoch
  its running statistics, and all other buffers, are copied from the first process.
- State for every row (`Job.per_example`) is written by the process that trains on the row, and
  merged after each epoch. If several processes wrote a row, their mean is kept.
- Every process evaluates all rows; the numbers of the first count, and only it writes and prints.
- Steps are executed eagerly: capturing NCCL's operations in a CUDA graph is untested.
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
    # Default arguments of this module's functions keep the process group that exists at import.
    # Torch would import it at an optimiser's first step, when there is a group; that group would
    # outlive destroy_process_group, and a gloo thread that frees a tensor while Python shuts down
    # aborts the process. Imported here, before there is a group, the defaults are harmless.
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
