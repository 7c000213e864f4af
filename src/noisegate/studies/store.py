"""Results on disk: one folder per run. A run is finished when its `result.json` exists."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import read_json, write_json
from noisegate._io.forms import mismatch
from noisegate._io.lock import is_locked
from noisegate._version import __version__
from noisegate.errors import DamagedFileError, InputError
from noisegate.studies.settings import FORMAT, RunSettings

Arrays = Mapping[str, npt.NDArray[Any]]
_FORM: Mapping[str, Any] = {
    "settings": {"seed": int},
    "metrics": {...: int | float},
    "history": [[{...: int | float}]],
    "seconds": int | float,
    "own_seconds?": int | float,
}
_FIELDS = {"format", "key", "settings", "metrics", "history", "seconds", "versions", "hardware"}


@dataclass(frozen=True)
class Result:
    """The result of a finished run.

    Attributes
    ----------
    settings : dict
        The full settings.
    metrics : dict of str to float
        Metrics of the final network, and the accuracies of the last, the best-noisy-validation and the
        oracle's epoch.
    history : list of list of dict
        One list a phase, one dict an epoch.
    about : dict
        Versions, hardware, seconds, peak memory in bytes, the realised noise.
    """

    key: str
    settings: dict[str, Any]
    metrics: dict[str, float]
    history: list[list[dict[str, float]]]
    about: dict[str, Any]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.settings["seed"])

    @property
    def seconds(self) -> float:
        """Wall-clock seconds from start to end."""
        return float(self.about["seconds"])

    @property
    def own_seconds(self) -> float:
        """Its share of that time if several runs shared the process."""
        return float(self.about.get("own_seconds", self.seconds))


class Store:
    """A folder of runs. Several processes, on several machines, may share it.

    Parameters
    ----------
    folder : path
        Created if missing. A folder in another format raises InputError.

    Attributes
    ----------
    set_aside : list of str
        Damaged result files that were found and renamed; their runs count as not finished.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.set_aside: list[str] = []
        self._known: dict[str, Result] = {}
        mark = self.folder / "store.json"
        if mark.exists():
            self._check(mark)
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"expected a folder of results at {self.folder}, found a file")
        # Another process may be writing store.json right now.
        if self.folder.is_dir() and not all(_is_mark(path) for path in self.folder.iterdir()):
            raise InputError(
                f"{self.folder} is not empty and not a folder of results (it has no store.json); name another"
            )
        write_json(mark, {"format": FORMAT, "noisegate": __version__})

    def _check(self, mark: Path) -> None:
        stored = read_json(mark)
        found = stored.get("format") if isinstance(stored, dict) else None
        if found != FORMAT:
            version = stored.get("noisegate", "unknown") if isinstance(stored, dict) else "unknown"
            raise InputError(
                f"{self.folder} holds results in format {found!r} of noisegate {version}, this noisegate "
                f"({__version__}) reads format {FORMAT}; use that version, or another folder"
            )

    def path(self, run: RunSettings | str) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / (run if isinstance(run, str) else run.key)

    # What there is.

    def result(self, run: RunSettings | str) -> Result | None:
        """The result of a run, or None. A damaged file is renamed and reported in `set_aside`."""
        key = run if isinstance(run, str) else run.key
        if key in self._known:
            return self._known[key]
        path = self.path(key) / "result.json"
        if not path.exists():
            return None
        try:
            result = _read_result(path, key)
        except DamagedFileError as error:
            self._set_aside(path, str(error))
            return None
        self._known[key] = result
        return result

    def _set_aside(self, path: Path, why: str) -> None:
        aside = path.with_name(f"{path.name}.damaged-{int(time.time())}")
        os.replace(path, aside)
        self.set_aside.append(f"{why}; it was renamed to {aside.name} and its run counts as not done")

    def arrays(self, run: RunSettings | str) -> dict[str, npt.NDArray[Any]]:
        """The arrays that the probes of a run stored; empty if it has no probes."""
        from noisegate._io.trees import load_tree

        path = self.path(run) / "arrays.safetensors"
        if not path.exists():
            return {}
        return {name: np.asarray(value) for name, value in load_tree(path).items()}

    def failure(self, run: RunSettings | str) -> dict[str, Any] | None:
        """How a run failed: `status` "diverged" or "crashed", and `error`; None if it did not."""
        path = self.path(run) / "failed.json"
        if not path.exists():
            return None
        try:
            found = dict(read_json(path))
            return {"status": str(found["status"]), "error": str(found["error"])} | found
        except (DamagedFileError, KeyError, TypeError, ValueError):
            return {"status": "crashed", "error": f"{path} is damaged"}

    def status(self, run: RunSettings) -> str:
        """ "finished", "diverged", "crashed", "running" (in some process), or "new"."""
        if self.result(run) is not None:
            return "finished"
        failure = self.failure(run)
        if failure is not None:
            return str(failure["status"])
        return "running" if is_locked(self.path(run)) else "new"

    def progress(self, run: RunSettings) -> dict[str, Any] | None:
        """The progress of a running run: `epoch`, `n_epochs`, `phase`, `accuracy`."""
        path = self.path(run) / "progress.json"
        try:
            return dict(read_json(path))
        except (InputError, OSError, TypeError, ValueError):
            return None

    def results(self) -> list[Result]:
        """Every finished run in the folder."""
        folder = self.folder / "runs"
        keys = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        found = (self.result(key) for key in keys)
        return [result for result in found if result is not None]

    # Writing: the caller must hold the lock of the run's folder.

    def save(self, run: RunSettings, content: Mapping[str, Any], arrays: Arrays) -> Result:
        """Store a result: arrays first, `result.json` last. Then delete the checkpoints."""
        folder = self.path(run)
        folder.mkdir(parents=True, exist_ok=True)
        if arrays:
            import torch

            from noisegate._io.trees import save_tree

            tensors = {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in arrays.items()}
            save_tree(folder / "arrays.safetensors", tensors)
        write_json(folder / "result.json", dict(content))
        (folder / "failed.json").unlink(missing_ok=True)
        self.forget_progress(run)
        self._known.pop(run.key, None)
        result = self.result(run)
        if result is None:
            raise DamagedFileError(f"{folder / 'result.json'} could not be read back: {self.set_aside[-1]}")
        return result

    def fail(self, run: RunSettings, status: str, error: str, **more: Any) -> None:
        """Record that a run diverged or crashed. It is retried only on request."""
        write_json(
            self.path(run) / "failed.json",
            {"status": status, "error": error, "settings": run.full(), "noisegate": __version__, **more},
        )

    def forgive(self, run: RunSettings) -> None:
        """Allow a failed run to be retried. A crashed run resumes; a diverged one starts over."""
        failure = self.failure(run)
        if failure is not None and failure.get("status") == "diverged":
            self.forget_progress(run)
        (self.path(run) / "failed.json").unlink(missing_ok=True)

    def forget_progress(self, run: RunSettings) -> None:
        """Delete the files that a run needs only while it is running."""
        folder = self.path(run)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        (folder / "progress.json").unlink(missing_ok=True)


def _is_mark(path: Path) -> bool:
    """Whether a path is store.json, or a temporary file of it."""
    return path.name.startswith((".store.json.", "store.json"))


def _read_result(path: Path, key: str) -> Result:
    content = read_json(path)
    if not isinstance(content, dict) or not _FIELDS <= set(content):
        lacking = ", ".join(sorted(_FIELDS - set(content))) if isinstance(content, dict) else "everything"
        raise DamagedFileError(f"{path} is not a result of a run (it lacks {lacking})")
    if content["format"] != FORMAT or content["key"] != key:
        raise DamagedFileError(f"{path} belongs to run {content['key']} in format {content['format']}")
    if told := mismatch(content, _FORM):
        raise DamagedFileError(f"{path} is not a result of a run ({told})")
    about = {k: v for k, v in content.items() if k not in ("key", "settings", "metrics", "history")}
    return Result(key, content["settings"], content["metrics"], content["history"], about)
