"""Damaged files within noisegate's own folders: audits, decisions, checkpoints, results of studies."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate._io.trees import load_tree, save_tree
from noisegate.auditing import stored
from noisegate.auditing.records import Choice
from noisegate.auditing.state import State, open_log
from noisegate.studies.execute import execute
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.training.checkpoint import RunFolder


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """A real audit with decisions in its log."""
    folder = tmp_path_factory.mktemp("audit") / "a"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = np.where(x[:, 0] + rng.normal(size=40) > 0, "yes", "no")
    ng.audit(x, y, method="ce", network="mlp-4", recipe={"epochs": 3}, folds=2, device="cpu").save(folder)
    with contextlib.closing(open_log(stored.read(folder))) as log:
        for row in range(10):
            log.decide([Choice(row, "keep", 0, 0)], reviewer="ana", key=f"key-{row}")
        # Everything in one file.
        log._db.execute("PRAGMA journal_mode = DELETE")
    return folder


def _report(folder):
    """An audit as its report reads it."""
    report = ng.AuditReport.load(folder)
    report.issues, report.summary(), report.why(0), report.to_dict(), report.confused, report.curve
    report.transition, report.transition_interval, report.duplicates, report.precision
    return report


def _rows(folder):
    """An audit as the review page reads single rows."""
    report = ng.AuditReport.load(folder)
    return [report.why(row) for row in (0, 39)]


def _decisions(audit):
    """A log of decisions as the review page and `apply` read it."""
    with contextlib.closing(open_log(audit)) as log:
        state = State(log, len(audit))
        return [state.of(row) for row in range(len(audit))], log.last(), log.can("ana")


#: Files, and what reads them: where it is not needed, not all of the audit for every damage.
FILES = {
    "audit.json": _report,
    "rows.parquet": _report,
    "probs.npy": _rows,
    "neighbours.npz": _rows,
    "decisions.sqlite": _decisions,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_audit_is_an_error_of_ours(audit, tmp_path, name, try_all):
    for file in audit.iterdir():
        if file.name in FILES:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = _report(tmp_path).audit
    assert _decisions(whole)
    path = tmp_path / name
    content = (audit / name).read_bytes()

    def read(_):
        if name != "decisions.sqlite":
            return FILES[name](tmp_path)
        for beside in tmp_path.glob("decisions.sqlite-*"):
            beside.unlink()
        return _decisions(whole)

    try_all(content, path, read)


def test_a_damaged_checkpoint_is_never_taken_for_a_sound_one(tmp_path, try_all):
    tree = {
        "module": {"w": torch.arange(12.0), "n": torch.tensor(3), "b": torch.ones(2, 3).bfloat16()},
        "history": [[{"loss": 0.25}]],
    }
    path = tmp_path / "phase-0.safetensors"
    save_tree(path, tree)

    def read(_):
        found = load_tree(path)
        assert found["history"] == tree["history"]
        for name, value in tree["module"].items():
            assert found["module"][name].dtype == value.dtype
            assert torch.equal(found["module"][name], value)

    read(path)
    try_all(path.read_bytes(), path, read)
    folder = RunFolder(tmp_path, {})
    try_all(path.read_bytes(), path, lambda _: folder.finished_phase(0))
    folder.close()


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_result_is_set_aside_or_read(tmp_path, try_all):
    run = RunSettings(data={"name": "moons", "n": 40}, method="ce", network="mlp-4", recipe={"epochs": 1})
    execute(run, Store(tmp_path), "cpu")
    path = Store(tmp_path).path(run) / "result.json"
    content = path.read_bytes()

    def read(_):
        store = Store(tmp_path)
        result = store.result(run)
        assert store.status(run) == ("new" if result is None else "finished")
        if result is not None:
            assert np.isfinite([result.seconds, result.own_seconds]).all()
            assert all(float(value) == value for value in result.metrics.values())
            assert all(list(epoch) for phase in result.history for epoch in phase)
            assert result.seed == int(result.settings["seed"])

    read(path)
    try_all(content, path, read)
