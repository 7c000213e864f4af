"""Checkpoints: the folder of a run, and the writing of what is stored there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noisegate._device import Pending
from noisegate._io.files import read_json, remove_parts, write_json
from noisegate._io.lock import locked
from noisegate._io.trees import Tree, load_tree, save_tree
from noisegate.errors import DamagedFileError, OtherRunError

log = logging.getLogger("noisegate")


class RunFolder:
    """The folder of one run: what it is, its finished phases, the state of the current one.

    `run.json` describes the run; a folder that describes another run is refused. `phase-N.safetensors` is the
    final state of a finished phase, `current.safetensors` the state of the one under way.
    """

    def __init__(self, folder: Path | str, description: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self._lock = locked(self.folder, "training")
        self._lock.__enter__()
        try:
            remove_parts(self.folder)
            self._check(description)
        except BaseException:
            self.close()
            raise

    def _check(self, description: dict[str, Any]) -> None:
        path = self.folder / "run.json"
        if not path.exists():
            write_json(path, description)
            return
        try:
            stored = dict(read_json(path))
        except (DamagedFileError, TypeError, ValueError) as error:
            raise OtherRunError(
                f"{path} cannot be read ({error}); choose another folder, or remove this one"
            ) from None
        # Versions change no result, or the changelog says so: a run goes on with a newer one.
        compared = description.keys() - {"noisegate"}
        differs = [key for key in description if key in compared and stored.get(key) != description[key]]
        if differs:
            raise OtherRunError(
                f"{self.folder} holds another run (it differs in {', '.join(differs)}); "
                "choose another folder, or remove this one"
            )

    def close(self) -> None:
        """Let other processes use the folder."""
        self._lock.__exit__(None, None, None)

    def _phase_path(self, phase: int) -> Path:
        return self.folder / f"phase-{phase}.safetensors"

    def finished_phase(self, phase: int) -> Tree | None:
        """The final state of a phase, or None if it has not finished, or the file is damaged."""
        return _readable(self._phase_path(phase))

    def finish_phase(self, phase: int, state: Tree) -> None:
        """Store the final state of a phase; the running state is not needed any more."""
        save_tree(self._phase_path(phase), state)
        (self.folder / "current.safetensors").unlink(missing_ok=True)

    def current(self, phase: int) -> Tree | None:
        """The running state of a phase, if it is the one that was under way and can be read."""
        state = _readable(self.folder / "current.safetensors")
        return state if state is not None and state["phase"] == phase else None

    def save_current(self, phase: int, state: Tree) -> None:
        """Store the running state of a phase."""
        save_tree(self.folder / "current.safetensors", {"phase": phase, **state})

    @property
    def divergence(self) -> dict[str, int] | None:
        """Where the run diverged, if it did."""
        path = self.folder / "diverged.json"
        return read_json(path) if path.exists() else None

    def record_divergence(self, **where: int) -> None:
        """Remember that the run diverged, so that nobody takes it for a result or repeats it."""
        write_json(self.folder / "diverged.json", where)


def _readable(path: Path) -> Tree | None:
    """What a file holds; None if it is not there, or damaged: then it is trained once more."""
    try:
        return load_tree(path) if path.exists() else None
    except DamagedFileError as error:
        log.warning("%s; that part is trained once more", error)
        return None


class CheckpointWriter:
    """Writes the states of a run one after the other; the states of a GPU from a thread of its own.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def write(self, state: Tree, store: Callable[[Tree], None]) -> None:
        """Store a state; on a GPU once the copies have arrived in pinned memory, while training goes on."""
        if self._device.type != "cuda":
            store(state)
            return
        self.wait()
        copied, arrived = on_host(state), Pending(self._device)

        def later() -> None:
            arrived.wait()
            store(copied)

        self._thread = self._thread or ThreadPoolExecutor(max_workers=1)
        self._writing = self._thread.submit(later)

    def wait(self) -> None:
        """Return when everything is written; an error of the writing is raised here."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Wait for what is being written, and end the thread."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None


def on_host(tree: Any) -> Any:
    """A copy of a tree whose GPU tensors are on their way to pinned memory: valid once the stream got there."""
    if isinstance(tree, Tensor):
        if not tree.is_cuda:
            return tree.detach().clone()
        host = torch.empty(tree.shape, dtype=tree.dtype, pin_memory=True)
        return host.copy_(tree.detach(), non_blocking=True)
    if isinstance(tree, dict):
        return {key: on_host(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(on_host(value) for value in tree)
    return tree
