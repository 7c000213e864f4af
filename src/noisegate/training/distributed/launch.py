"""Starting the processes of a run, and joining those that torchrun has started."""

from __future__ import annotations

import atexit
import datetime
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import connection
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from noisegate._io.processes import how_it_ended, no_interrupt
from noisegate.errors import InputError
from noisegate.training.distributed.world import World, _packed, _unpacked, world

T = TypeVar("T")
#: What torchrun tells its processes.
ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Long enough for the first process to write a checkpoint or evaluate alone on a slow disk.
TIMEOUT = datetime.timedelta(minutes=30)


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
