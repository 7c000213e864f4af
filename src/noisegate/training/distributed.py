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

import atexit
import contextlib
import datetime
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from noisegate._io.processes import how_it_ended, no_interrupt
from noisegate.errors import InputError
from noisegate.objectives.base import added_up
from noisegate.training.randomness import RandomState

if dist.is_available():
    # Its functions have for a default the group of all processes as it is when they are defined. Torch imports it
    # at an optimiser's first step: the group would then outlive its end, and a thread of gloo's that lets go of a
    # tensor while Python shuts down ends the process by an abort.
    import torch.distributed.nn.functional

T = TypeVar("T")
#: What torchrun tells its processes.
ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Long enough for the first process to write a checkpoint or evaluate alone on a slow disk.
TIMEOUT = datetime.timedelta(minutes=30)


@dataclass(frozen=True)
class World:
    """How many processes there are, and which one this is."""

    rank: int = 0
    size: int = 1

    @property
    def several(self) -> bool:
        """Whether there is anybody else."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """This process's part of a batch of n rows.

        >>> World(rank=1, size=2).part(6)
        slice(3, 6, None)
        """
        if n % self.size:
            near = max(self.size, n - n % self.size)
            raise InputError(
                f"a batch of {n} rows cannot be split evenly over {self.size} processes; "
                f"choose a batch_size like {near} (and at least so many rows)"
            )
        each = n // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


def world() -> World:
    """The processes of torch.distributed; this one alone where that is not initialised."""
    if not (dist.is_available() and dist.is_initialized()):
        return World()
    return World(dist.get_rank(), dist.get_world_size())


# -- a step ----------------------------------------------------------------------------------------


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
    """Add the gradients of all processes, those of one type in one message."""
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
    """The loss of the whole batch, and whether any process has something to learn from it."""
    values = torch.stack([loss.detach().double(), (loss.new_ones(()) if active is None else active).double()])
    dist.all_reduce(values)
    return values[0], None if active is None else values[1] > 0


def own_draws(state: RandomState, device: torch.device, *key: int | str) -> None:
    """Go on with random numbers that follow from the key. Inside `state.active()`."""
    other = RandomState(device)
    other.seed(*key)
    with other.active():
        drawn = other.save()
    state.restore(drawn)


# -- between epochs --------------------------------------------------------------------------------


def from_first(value: T) -> T:
    """The first process's value, everywhere; it must be picklable."""
    if not world().several:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def on_first(make: Callable[[], T]) -> T | None:
    """What `make` returns in the first process, None in the others; its error is raised in all."""
    here = world()
    if not here.several:
        return make()
    made, error = None, None
    if here.first:
        try:
            made = make()
        except Exception as raised:
            error = raised
    told = from_first(None if error is None else _packed(error))
    if told is not None:
        raise error or _unpacked(told)
    return made


@torch.no_grad()
def broadcast(tensors: Iterable[Tensor]) -> None:
    """Give every process the first one's values."""
    for tensor in tensors:
        if tensor.numel():
            # A copy that is laid out plainly: not every backend takes other layouts.
            plain = tensor.detach().clone(memory_format=torch.contiguous_format)
            dist.broadcast(plain, src=0)
            tensor.copy_(plain)


@torch.no_grad()
def merge_rows(table: Tensor, mine: Tensor) -> None:
    """Bring a table `(N, ...)` together of which this process has written the rows `mine`, in place."""
    count = table.new_zeros(len(table), *[1] * (table.dim() - 1))
    count[mine] = 1
    merged = torch.zeros_like(table)
    merged[mine] = table[mine]
    dist.all_reduce(count)
    dist.all_reduce(merged)
    table.copy_(torch.where(count > 0, merged / count.clamp_min(1), table))


# -- starting --------------------------------------------------------------------------------------


def from_environment(device: str | torch.device = "auto") -> World:
    """Join the processes that torchrun has started, if it has and nobody did it before.

    With GPUs this process's is the one of its number on the machine (LOCAL_RANK), and NCCL moves the numbers; on
    CPUs gloo does.
    """
    if world().several or not started_by_torchrun():
        return world()
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        _stay_on_this_machine()
    _join(rank, size, local, device)
    atexit.register(_leave)
    return world()


def leave_together() -> None:
    """Leave the others at the end of the work; nobody goes while another one still needs it."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        _leave()


def _stay_on_this_machine() -> None:
    """Let gloo talk over the loop-back: what a machine calls itself need not be an address."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def started_by_torchrun() -> bool:
    """Whether this is one of several processes that were started together."""
    told = all(name in os.environ for name in ENVIRONMENT)
    return told and dist.is_available() and int(os.environ["WORLD_SIZE"]) > 1


def _join(rank: int, size: int, local: int, device: str | torch.device, store: Any = None) -> None:
    gpu = uses_gpus(device)
    if gpu:
        check_devices(local + 1, device)
        torch.cuda.set_device(local)
    backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def _leave() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def uses_gpus(device: str | torch.device) -> bool:
    """Whether processes on this device are one a GPU."""
    kind = "cuda" if str(device) == "auto" and torch.cuda.is_available() else str(device)
    return kind.startswith("cuda")


def check_devices(n: int, device: str | torch.device) -> None:
    """Refuse more processes than GPUs, and a single GPU for all of them."""
    if n < 1:
        raise InputError(f"the number of devices must be at least 1, got {n}")
    if not dist.is_available():
        raise InputError("this build of torch has no torch.distributed, so one device is all it can use")
    if not uses_gpus(device):
        return
    if ":" in str(device):
        raise InputError(f"each process has a GPU of its own: say device 'cuda' or 'auto', not {device!s}")
    if n > torch.cuda.device_count():
        raise InputError(
            f"{n} devices were asked for, but torch sees {torch.cuda.device_count()} GPUs; "
            "ask for fewer, or for processes on the CPU with the device 'cpu'"
        )


def launch(function: Callable[..., T], n: int, *args: Any, device: str | torch.device = "auto") -> list[T]:
    """Call a function in n new processes that are joined, and return what each of them returned.

    Parameters
    ----------
    function : function
        It and its arguments must be picklable: a function of a module, or a `functools.partial` of one. A script
        that calls this needs `if __name__ == "__main__":`, as everywhere with processes in Python.
    n : int
    *args
    device : "auto", "cpu", "cuda"
        A GPU for each process where there are GPUs, at most as many as there are; otherwise CPU processes.

    Raises
    ------
    Exception
        The first error in any of them; the others are ended. Ctrl-C ends them all.
    """
    check_devices(n, device)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    payload = pickle.dumps((function, args, str(device)))
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    try:
        for rank in range(n):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_process, args=(payload, rank, n, store.port, theirs), daemon=True
            )
            with no_interrupt():
                process.start()
            # Once the child is the only one to hold its end, its death closes the pipe.
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        return _collect(pipes, processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def _collect(pipes: list[Any], processes: list[Any]) -> list[Any]:
    results: dict[int, Any] = {}
    while len(results) < len(pipes):
        errors: list[Exception] = []
        for pipe in connection.wait([pipe for rank, pipe in enumerate(pipes) if rank not in results]):
            rank = pipes.index(pipe)
            try:
                fine, results[rank] = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
            except EOFError:
                fine = True
                errors.append(RuntimeError(f"process {rank} of {len(pipes)} {how_it_ended(processes[rank])}"))
            if not fine:
                errors.append(_unpacked(results[rank]))
        if errors:
            # That the others have gone, which torch says by a plain error, is not what went wrong.
            raise min(errors, key=lambda error: type(error).__module__ in ("builtins", "torch.distributed"))
    return [results[rank] for rank in range(len(pipes))]


def _process(payload: bytes, rank: int, size: int, port: int, pipe: Any) -> None:
    """What a launched process does: join the others, call the function, send back what came of it."""
    # Ctrl-C is the starter's business; and without it nobody would wait for this process any more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _stay_on_this_machine()
    torch.set_num_threads(max(1, torch.get_num_threads() // size))
    try:
        function, args, device = pickle.loads(payload)
        _join(rank, size, rank, device, dist.TCPStore("127.0.0.1", port, is_master=False))
        answer = pickle.dumps((True, function(*args)))
        leave_together()
    except Exception as error:
        answer = pickle.dumps((False, _packed(error)))
    pipe.send_bytes(answer)
    pipe.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _packed(error: Exception) -> bytes:
    """An error as bytes: by pickle, part by part if its constructor wants other arguments, or as plain words."""
    ways = ((error, None, None), (type(error), error.args, error.__dict__))
    for way in ways:
        with contextlib.suppress(Exception):
            packed = pickle.dumps(way)
            if str(_unpacked(packed)) == str(error):
                return packed
    return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None, None))


def _unpacked(packed: bytes) -> Exception:
    found, args, state = pickle.loads(packed)
    if isinstance(found, Exception):
        return found
    error = found.__new__(found, *args)
    error.__dict__.update(state)
    return error
