"""The Ray session of a study: that of the process, a cluster by its address, or one of this machine alone."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from noisegate.errors import InputError, first_line
from noisegate.studies import memory
from noisegate.studies.engines.local import RUN_BYTES

#: Environment variable that Ray reads when it is imported: "0" keeps it on the loopback interface.
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: Seconds to wait for an address to answer.
REACH = 5.0
#: Bytes of shared memory of a cluster on this machine. Messages are small.
OBJECTS = 256 * 2**20

Resources = Mapping[str, float]


def imported(address: str | None) -> Any:
    """The module `ray`, with its settings made before it reads them."""
    # Ray must not report about its users, nor warn about a default that we do not rely on.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not (address or os.environ.get("RAY_ADDRESS")):
        # A cluster of this machine alone: every process of it listens on the loopback interface
        # only. Ray has no other switch for that; its name is of the systems where it is off by
        # default.
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError:
        raise InputError("the engine ray needs Ray: pip install 'noisegate[ray]'") from None
    return ray


def elsewhere(ray: Any, address: str | None) -> str | None:
    """The address to connect to; None to start a cluster on this machine."""
    if ray.is_initialized():
        return str(ray.get_runtime_context().gcs_address)
    return address or os.environ.get("RAY_ADDRESS") or None


@contextlib.contextmanager
def session(wanted: str | None) -> Iterator[Any]:
    """The connected `ray` module. A cluster that was started here is shut down at the end."""
    ray = imported(wanted)
    address = elsewhere(ray, wanted)
    if ray.is_initialized():
        if wanted not in (None, "auto", address):
            raise InputError(
                f"this process is connected to the Ray cluster at {address}, not to {wanted}; "
                "leave the address out, or call ray.shutdown() first"
            )
        yield ray
        return
    with contextlib.ExitStack() as stack:
        undo = stack.enter_context(_own_sigterm())
        folder = None if address else stack.enter_context(_short_folder())
        stack.callback(ray.shutdown)
        if address:
            _connect(ray, address)
        else:
            start(ray, folder)
        undo()
        yield ray


@contextlib.contextmanager
def _own_sigterm() -> Iterator[Callable[[], None]]:
    """Keep this process's handler of SIGTERM; Ray's aborts the process after three seconds, with a dump.

    What is yielded is to be called once Ray has set its own. Where SIGTERM would end the process at
    once, it raises SystemExit instead, so that submitted work is cancelled.
    """
    before = signal.getsignal(signal.SIGTERM)
    ours = threading.current_thread() is threading.main_thread() and before is not None

    def undo(handler: Any = _leave if before is signal.SIG_DFL else before) -> None:
        if ours:
            signal.signal(signal.SIGTERM, handler)

    try:
        yield undo
    finally:
        undo(before)


def _leave(number: int, frame: Any) -> None:
    sys.exit(128 + number)


def _quiet() -> dict[str, Any]:
    return {"log_to_driver": False, "logging_level": logging.ERROR}


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    # Ray's sockets are there, and a socket's path has about a hundred characters at most.
    short = "/tmp" if os.access("/tmp", os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="ng-ray-", dir=short, ignore_cleanup_errors=True)


def start(ray: Any, folder: str | None) -> None:
    """A cluster of this machine alone, with its files in `folder`."""
    if ray.util.get_node_ip_address() != "127.0.0.1":
        raise InputError(
            "Ray was imported before noisegate could tell it to listen on this machine only, and would be "
            f"reachable from the network: set {LOOPBACK}=0 first, or call ray.init yourself"
        )
    here = this_machine()
    try:
        ray.init(
            address="local",
            num_cpus=int(here["CPU"]),
            num_gpus=int(here["GPU"]),
            object_store_memory=OBJECTS,
            include_dashboard=False,
            _temp_dir=folder,
            **_quiet(),
        )
    except Exception as error:
        raise InputError(f"Ray could not be started on this machine: {first_line(error)}") from error


def _connect(ray: Any, address: str) -> None:
    _check_reachable(address)
    try:
        ray.init(address=address, **_quiet())
    except Exception as error:
        raise InputError(f"no connection to the Ray cluster at {address!r}: {first_line(error)}") from error


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would try for a quarter of an hour."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"nobody answers at {address} ({error}); start the cluster (ray start --head), or name its address"
        ) from None


def this_machine() -> Resources:
    import torch

    cpus = max(1, min(memory.cores(), memory.available() // RUN_BYTES))
    return {"CPU": cpus, "GPU": torch.cuda.device_count()}
