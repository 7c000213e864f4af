"""`AuditReport`: the findings of an audit as tables and numbers, saved as an audit folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from noisegate._io.files import atomic
from noisegate.auditing import stored, words
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError

#: Maximum number of rows of inputs from memory that are saved with an audit, the worst first.
MOST_INPUTS = 10_000
#: Prefix of the columns of training signals.
SIGNAL = "signal_"


class Estimate(float):
    """A number, with its 95 % interval in `low` and `high`.

    >>> rate = Estimate(0.2, 0.1, 0.3)
    >>> rate + 1, rate
    (1.2, 0.2 (0.1 to 0.3))
    """

    low: float
    high: float

    def __new__(cls, value: float | None, low: float | None = None, high: float | None = None) -> Estimate:
        number = super().__new__(cls, np.nan if value is None else value)
        number.low = np.nan if low is None else low
        number.high = np.nan if high is None else high
        return number

    def __repr__(self) -> str:
        return f"{float(self):.3g} ({self.low:.3g} to {self.high:.3g})"


class AuditReport:
    """What `noisegate.audit` found.

    Parameters
    ----------
    audit : StoredAudit
        The content of an audit folder.
    inputs : array (N, ...) or data frame, default=None
        The audited inputs, if they came from memory: the worst rows are saved with the report.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons", n=200).corrupt(ng.noise.Symmetric(0.3), seed=0)
    >>> report = ng.audit(data, method="ce", recipe={"epochs": 10}, folds=2, device="cpu")
    >>> report.issues.columns[:4].tolist(), report.quality.shape
    (['row', 'id', 'given_label', 'suggested_label'], (200,))
    >>> bool(0 < report.noise_rate < 0.5), report.transition.shape
    (True, (2, 2))
    """

    def __init__(self, audit: StoredAudit, inputs: Any = None) -> None:
        self.audit, self._inputs = audit, inputs

    # -- rows --------------------------------------------------------------------------------------

    @property
    def issues(self) -> pd.DataFrame:
        """A data frame with one line per row of the data, worst first.

        Columns: row (counted from 0 in the order of the data), id (the name of the file, or the
        row's number in the file as a spreadsheet shows it), given_label, suggested_label (as in the data),
        suggested_probability, quality in [0, 1], p_wrong, is_label_issue (worth a look), is_sure (at least
        95 % of these are expected to be wrong).
        """
        rows = self.audit.rows[list(stored.COLUMNS)].copy()
        values = pd.Series(self.audit.label_values)
        for name in ("given_label", "suggested_label"):
            rows[name] = values.to_numpy()[rows[name].to_numpy()]
        return rows

    def get_label_issues(self) -> pd.DataFrame:
        """The rows in the order of the data, under the names of cleanlab's `CleanLearning.get_label_issues`.

        Columns: is_label_issue, label_quality (`quality`), given_label, predicted_label (`suggested_label` of
        flagged rows, else the given label). For scripts written for cleanlab.
        """
        rows = self.issues.sort_values("row").reset_index(drop=True)
        return pd.DataFrame(
            {
                "is_label_issue": rows["is_label_issue"],
                "label_quality": rows["quality"],
                "given_label": rows["given_label"],
                "predicted_label": rows["suggested_label"].where(rows["is_label_issue"], rows["given_label"]),
            }
        )

    @property
    def quality(self) -> npt.NDArray[np.float64]:
        """Probability that each row's label is right, (N,), in the order of the data."""
        return self._in_order("quality").astype(np.float64)

    @property
    def signals(self) -> pd.DataFrame:
        """Signals from one training run, (N, signals) in the order of the data, for detector "in-training".

        Each is a mean over the epochs and is high where a label is likely wrong: `contradicted`, the share of
        epochs after which another class was more probable; `residual` and `label_term` (LN: r' r and
        r' Sigma^-1 r), `dropped` (co-teaching, MentorNet), `disagreement` (ELR), `unlikely` (DivideMix),
        `posterior` (CausalNL). No columns for other detectors.
        """
        names = [name for name in self.audit.rows.columns if name.startswith(SIGNAL)]
        return pd.DataFrame(
            {name.removeprefix(SIGNAL): self._in_order(name) for name in names}, index=range(len(self.audit))
        )

    @property
    def probs(self) -> npt.NDArray[Any] | None:
        """Out-of-fold probabilities (N, K), in the order of the data."""
        return self.audit.probs

    def _in_order(self, name: str) -> npt.NDArray[Any]:
        column = self.audit.rows[name].to_numpy()
        values = np.empty_like(column)
        values[self.audit.rows["row"].to_numpy()] = column
        return values

    def why(self, row: int) -> pd.DataFrame:
        """The rows nearest to a flagged row in the network's last layer: row, label, similarity, agrees.

        Empty for rows whose neighbours were not searched.
        """
        near = [] if self.audit.neighbours is None else self.audit.neighbours.of(row)
        given = self._in_order("given_label")
        values = self.audit.label_values
        return pd.DataFrame(
            {
                "row": [r for r, _ in near],
                "label": [values[given[r]] for r, _ in near],
                "similarity": [s for _, s in near],
                "agrees": [bool(given[r] == given[row]) for r, _ in near],
            }
        )

    # -- the data set ------------------------------------------------------------------------------

    @property
    def info(self) -> Mapping[str, Any]:
        """All findings about the whole data set, as plain data: the content of audit.json."""
        return self.audit.info

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return self.audit.classes

    @property
    def noise_rate(self) -> Estimate:
        """The share of wrong labels, a float with `low` and `high`."""
        return _estimate(self.info.get("noise_rate"))

    @property
    def errors(self) -> Estimate:
        """The number of wrong labels."""
        return _estimate(self.info.get("errors"))

    @property
    def precision(self) -> dict[str, Estimate]:
        """The expected share of wrong labels among the rows flagged "look" and "sure"."""
        found = self.info.get("precision") or {}
        return {name: _estimate(found[name]) for name in ("look", "sure") if name in found}

    @property
    def transition(self) -> npt.NDArray[np.float64] | None:
        """P(given j | true i), (K, K)."""
        return self._matrix("value")

    @property
    def transition_interval(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
        """The ends of the 95 % interval of each entry of `transition`."""
        low, high = self._matrix("low"), self._matrix("high")
        return None if low is None or high is None else (low, high)

    def _matrix(self, name: str) -> npt.NDArray[np.float64] | None:
        matrices = self.info.get("transition")
        return None if matrices is None else np.asarray(matrices[name], dtype=np.float64)

    @property
    def confused(self) -> pd.DataFrame:
        """Pairs of classes by the number of rows of `true` that carry the label `given`, most first."""
        frame = pd.DataFrame(self.info.get("confused") or [], columns=["true", "given", "count", "share"])
        values = self.audit.label_values
        return frame.assign(**{c: [values[code] for code in frame[c]] for c in ("true", "given")})

    @property
    def curve(self) -> pd.DataFrame:
        """Errors found after looking at the first n rows: looked, found, low, high."""
        return pd.DataFrame(self.info.get("curve") or {"looked": [], "found": []})

    @property
    def instance_dependence(self) -> Mapping[str, Any] | None:
        """Whether noise depends on the input: p_value, statistic, method, conclusion."""
        return self.info.get("instance_dependence")

    @property
    def duplicates(self) -> Sequence[Mapping[str, Any]]:
        """Groups of near duplicates with different labels: rows, labels."""
        values = self.audit.label_values
        groups = self.info.get("duplicates") or []
        return [
            {"rows": group["rows"], "labels": [values[code] for code in group["labels"]]} for group in groups
        ]

    @property
    def cleaning(self) -> Mapping[str, Any] | None:
        """What training on cleaned labels changes, if `clean` was given."""
        return self.info.get("cleaning")

    # -- in words, files ---------------------------------------------------------------------------

    def summary(self) -> str:
        """The findings in a few plain sentences, the most important first: those of the HTML report."""
        return "\n".join([*words.summary(self.audit), *(self.info.get("notes") or [])])

    def __repr__(self) -> str:
        return f"<AuditReport of {len(self.audit):,} rows: noise rate {self.noise_rate!r}>"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the probabilities, as plain data."""
        rows = self.issues.to_dict(orient="list")
        content: dict[str, Any] = json.loads(json.dumps({**self.info, "issues": rows}, default=_plain))
        return content

    def save(self, folder: str | Path) -> Path:
        """Write the audit folder, which `noisegate review` and `noisegate apply` read."""
        path = stored.write(folder, self.audit)
        if self._inputs is not None:
            _write_inputs(path, self._inputs, self.audit.rows["row"].to_numpy()[:MOST_INPUTS])
        return path

    @classmethod
    def load(cls, folder: str | Path) -> AuditReport:
        """Read an audit folder."""
        return cls(stored.read(folder))

    def to_html(self, path: str | Path) -> Path:
        """Write the report as one self-contained HTML file."""
        from noisegate.auditing.report import write_report

        path = Path(path)
        if path.is_dir():
            raise InputError(f"expected the name of a file, got the folder {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="noisegate-") as scratch:
            written = write_report(self.save(Path(scratch) / "audit"))
            shutil.copyfile(written, path)
        return path


def _estimate(entry: Mapping[str, Any] | None) -> Estimate:
    entry = entry or {}
    return Estimate(entry.get("value"), entry.get("low"), entry.get("high"))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _write_inputs(folder: Path, inputs: Any, worst: npt.NDArray[np.int64]) -> None:
    """The worst rows of data from memory, so that report and review page can show them."""
    rows = np.sort(worst)
    if isinstance(inputs, pd.DataFrame):
        frame = inputs.iloc[rows].reset_index(drop=True)
        if len(frame) < len(inputs):
            frame = frame.assign(row=rows)
        with atomic(folder / "inputs.parquet") as file:
            frame.to_parquet(file, index=False)
        return
    with atomic(folder / "inputs.npz") as file:
        np.savez_compressed(file, x=inputs[rows], rows=rows)
