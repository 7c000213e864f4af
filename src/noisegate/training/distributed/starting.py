"""Start the processes of a run, or join those that torchrun has started."""

from __future__ import annotations

import atexit
import datetime
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import multiprocessing

from noisegate._io.processes import how_it_ended, no_interrupt
from noisegate.errors import InputError, ProcessDiedError
from noisegate.training.distributed.processes import World, packed_error, unpacked_error, world

T = TypeVar("T")
#: Environment variables that torchrun sets in its processes.
ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Long enough for the others to wait while the first process writes or evaluates on a slow disk.
TIMEOUT = datetime.timedelta(minutes=30)
#: Modules of the errors that a process raises because another process has ended.
PLAIN = ("builtins", "torch.distributed")


def from_environment(device: str | torch.device = "auto") -> World:
    """Join the processes that torchrun has started; do nothing if there are none or it is done.

    On GPUs each process uses the GPU whose number is LOCAL_RANK, and NCCL communicates; on CPUs
    gloo does.

    Parameters
    ----------
    device : str or torch.device, default="auto"
        "auto" uses GPUs if there are any.
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
    """Wait until all processes have finished, then leave the process group."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        _leave()


def _stay_on_this_machine() -> None:
    """Make gloo and NCCL use the loopback interface only, which other machines cannot reach.

    It also avoids failures on machines whose host name does not resolve to an address.
    """
    if sys.platform == "linux":
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")


def started_by_torchrun() -> bool:
    """Whether this is one of several processes that torchrun has started."""
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
    """Whether processes on this device use one GPU each."""
    kind = "cuda" if str(device) == "auto" and torch.cuda.is_available() else str(device)
    return kind.startswith("cuda")


def check_devices(n: int, device: str | torch.device) -> None:
    """Raise InputError for more processes than GPUs, or if one GPU is named for all of them."""
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
    """Call a function in n new processes that form a process group; return the list of results.

    Parameters
    ----------
    function : function
        The function and its arguments must be picklable: a module-level function, or a
        `functools.partial` of one. A script that calls `launch` needs `if __name__ == "__main__":`,
        because each process imports the script.
    n : int
        Number of processes.
    *args
        Arguments of the function.
    device : {"auto", "cpu", "cuda"}, default="auto"
        "cuda": a GPU for each process. "auto": the same if there are GPUs, else the CPU.

    Raises
    ------
    Exception
        The first error in any process; the other processes are ended. Ctrl-C ends all of them.
    ProcessDiedError
        If a process was killed, or ended without an error.
    """
    check_devices(n, device)
    with tempfile.TemporaryDirectory(prefix="noisegate-") as folder:
        with no_interrupt():
            context = multiprocessing.start_processes(
                _process,
                (Path(folder), n, function, args, str(device)),
                nprocs=n,
                join=False,
                daemon=True,
                start_method="spawn",
            )
        try:
            while not context.join():
                pass
        except multiprocessing.ProcessExitedException as error:
            raise _died(error.error_index, context.processes) from None
        except multiprocessing.ProcessRaisedException:
            errors = [unpacked_error(path.read_bytes()) for path in sorted(Path(folder).glob("*.error"))]
            # Prefer the original error to errors that merely say that a peer has gone.
            first = min(errors, key=_says_that_a_peer_has_gone)
            if _says_that_a_peer_has_gone(first):
                # torch ends the others with SIGTERM: any other signal came from outside.
                codes = [process.exitcode or 0 for process in context.processes]
                killed = [rank for rank, code in enumerate(codes) if code < 0 and code != -signal.SIGTERM]
                if killed:
                    raise _died(killed[0], context.processes) from None
            raise first from None
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        return [pickle.loads((Path(folder) / f"{rank}.answer").read_bytes()) for rank in range(n)]


def _says_that_a_peer_has_gone(error: Exception) -> bool:
    """Whether an error may be one that a process raises because another one has ended."""
    return type(error).__module__ in PLAIN


def _died(rank: int, processes: Sequence[BaseProcess]) -> ProcessDiedError:
    how = how_it_ended(processes[rank], ": try a smaller batch_size or fewer devices")
    return ProcessDiedError(
        f"process {rank} of {len(processes)} {how}; a run with a checkpoint folder goes on where it stopped "
        "when it is started again"
    )


def _process(
    rank: int, folder: Path, size: int, function: Callable[..., Any], args: tuple[Any, ...], device: str
) -> None:
    """Join the group, call the function, and write its result or error to the folder."""
    # Ctrl-C reaches all processes of the terminal: the parent handles it and ends this one. If the
    # parent itself dies, the thread ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _stay_on_this_machine()
    torch.set_num_threads(max(1, torch.get_num_threads() // size))
    try:
        # Rendezvous by a file in the parent's private folder: a TCPStore listens on all interfaces.
        _join(rank, size, rank, device, dist.FileStore(str(folder / "store"), size))
        (folder / f"{rank}.answer").write_bytes(pickle.dumps(function(*args)))
        leave_together()
    except Exception as error:
        (folder / f"{rank}.error").write_bytes(packed_error(error))
        raise


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
