"""Checkpoints: the folder of a run, and a writer that does not hold up training."""

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
from noisegate.errors import DamagedFileError, OtherRunError, is_real

log = logging.getLogger("noisegate")
#: What a record of divergence says.
_WHERE = {"phase", "epoch", "step"}


class RunFolder:
    """The folder of one run: its identity, the finished phases, the state of the current phase.

    `run.json` holds the identity of the run; the folder of another run is refused.
    `phase-N.safetensors` is the final state of a finished phase, `current.safetensors` the latest
    state of the unfinished one. The folder is locked until `close`.

    Parameters
    ----------
    folder : path
        Created if missing.
    description : dict
        Identity of the run, as plain data.

    Raises
    ------
    OtherRunError
        If the folder belongs to another run.
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
        # A run may be resumed by a newer version: new versions keep results, or the changelog says
        # so.
        compared = description.keys() - {"noisegate"}
        differs = [key for key in description if key in compared and stored.get(key) != description[key]]
        if differs:
            raise OtherRunError(
                f"{self.folder} holds another run (it differs in {', '.join(differs)}); "
                "choose another folder, or remove this one"
            )

    def close(self) -> None:
        """Unlock the folder for other processes."""
        self._lock.__exit__(None, None, None)

    def _phase_path(self, phase: int) -> Path:
        return self.folder / f"phase-{phase}.safetensors"

    def finished_phase(self, phase: int) -> Tree | None:
        """The final state of a phase; None if it has not finished or the file is damaged."""
        return _readable(self._phase_path(phase), {"module", "history"})

    def finish_phase(self, phase: int, state: Tree) -> None:
        """Store the final state of a phase, and delete its intermediate state."""
        save_tree(self._phase_path(phase), state)
        (self.folder / "current.safetensors").unlink(missing_ok=True)

    def current(self, phase: int) -> Tree | None:
        """The intermediate state of a phase; None if there is none that can be read."""
        state = _readable(self.folder / "current.safetensors", {"phase"})
        return state if state is not None and state["phase"] == phase else None

    def save_current(self, phase: int, state: Tree) -> None:
        """Store the intermediate state of a phase."""
        save_tree(self.folder / "current.safetensors", {"phase": phase, **state})

    @property
    def divergence(self) -> dict[str, int] | None:
        """Phase, epoch and step at which the run diverged; None if it did not."""
        path = self.folder / "diverged.json"
        try:
            found = read_json(path) if path.exists() else None
        except DamagedFileError as error:
            log.warning("%s; the run is trained once more", error)
            return None
        if found is not None and (
            not isinstance(found, dict) or set(found) != _WHERE or not all(map(is_real, found.values()))
        ):
            log.warning("%s does not say where the run diverged; it is trained once more", path)
            return None
        return found

    def record_divergence(self, **where: int) -> None:
        """Record where the run diverged, so that it is neither used as a result nor repeated."""
        write_json(self.folder / "diverged.json", where)


def _readable(path: Path, names: set[str]) -> Tree | None:
    """Load a file that has these entries; None if it is missing, or damaged (that part is trained again)."""
    try:
        found = load_tree(path) if path.exists() else None
        if found is not None and not (isinstance(found, dict) and names <= set(found)):
            raise DamagedFileError(f"{path} lacks {', '.join(sorted(names))}")
    except DamagedFileError as error:
        log.warning("%s; that part is trained once more", error)
        return None
    return found


class CheckpointWriter:
    """Writes the checkpoints of a run in order; those from a GPU in a background thread.

    Parameters
    ----------
    device : torch.device
        Where the run is trained.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def write(self, state: Tree, store: Callable[[Tree], None]) -> None:
        """Store a state by `store(state)`.

        On a GPU this returns at once: a thread waits until the state has been copied to pinned
        memory, then stores it, while training goes on.
        """
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
        """Wait until everything is written; raise the error of a failed write here."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Wait until everything is written, and end the thread."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None


def on_host(tree: Any) -> Any:
    """Copy a tree to the host; copies from a GPU are valid once the stream has made them."""
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
