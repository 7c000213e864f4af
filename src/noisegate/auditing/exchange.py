"""Decisions as tables and as Label Studio tasks, and back."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from noisegate._io.files import atomic, read_json, write_json, write_text
from noisegate.auditing import stored
from noisegate.auditing.content import Cached, names_in_order, open_content
from noisegate.auditing.decisions import Decisions
from noisegate.auditing.records import Choice, Decided
from noisegate.auditing.state import open_log
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "id",
    "given_label",
    "suggested_label",
    "label",
    "decision",
    "quality",
    "reviewer",
    "decided_at",
    "audit_id",
)


def decisions_frame(audit: StoredAudit, decided: Iterable[Decided]) -> pd.DataFrame:
    """Decisions as a table with the columns `COLUMNS`; a skipped row has no label."""
    import pandas as pd

    decided = list(decided)
    rank = np.empty(len(audit), np.int64)
    rank[audit.rows["row"].to_numpy()] = np.arange(len(audit))
    lines = audit.rows.iloc[rank[[d.row for d in decided]]] if decided else audit.rows.head(0)
    values = audit.label_values

    def labels(codes: Sequence[int]) -> pd.Series:
        kind = (
            "boolean" if isinstance(values[0], bool) else "Int64" if isinstance(values[0], int) else "string"
        )
        return pd.Series([values[code] if code >= 0 else None for code in codes], dtype=kind)

    return pd.DataFrame(
        {
            "id": lines["id"].to_numpy(),
            "given_label": labels(lines["given_label"].tolist()),
            "suggested_label": labels(lines["suggested_label"].tolist()),
            "label": labels([d.label for d in decided]),
            "decision": [d.decision for d in decided],
            "quality": lines["quality"].to_numpy(np.float64),
            "reviewer": [d.reviewer for d in decided],
            "decided_at": [d.at for d in decided],
            "audit_id": audit.audit_id,
        },
        columns=list(COLUMNS),
    )


def as_csv(frame: pd.DataFrame) -> bytes:
    """A frame as CSV with line feeds, so that it is the same on every machine."""
    buffer = io.StringIO(newline="")
    frame.to_csv(buffer, index=False, lineterminator="\n", float_format="%.6g")
    return buffer.getvalue().encode()


def export_decisions(folder: str | Path, out: str | Path) -> int:
    """Write the decisions of an audit to a .csv or .parquet file; the number of decisions."""
    audit, out = stored.read(folder), Path(out)
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"decisions are written to a .csv or .parquet file, got {out}")
    frame = decisions_frame(audit, _last(audit))
    with atomic(out) as file:
        if out.suffix.lower() == ".csv":
            file.write(as_csv(frame))
        else:
            frame.to_parquet(file, index=False)
    return len(frame)


def _last(audit: StoredAudit) -> list[Decided]:
    log = open_log(audit)
    try:
        return log.last()
    finally:
        log.close()


# -- Label Studio ----------------------------------------------------------------------------------


def export_label_studio(folder: str | Path, out: str | Path, root: Path | None = None) -> int:
    """Write flagged and decided rows as Label Studio tasks, with the labelling configuration beside.

    Suggestions are predictions, decisions are annotations. Images are named by their path below the
    audited folder, as Label Studio's local storage serves them. Returns the number of tasks.
    """
    audit, out = stored.read(folder), Path(out)
    if out.suffix.lower() != ".json":
        raise InputError(f"Label Studio tasks are written to a .json file, got {out}")
    decided = {d.row: d for d in _last(audit)}
    content, rows = Cached(open_content(audit, root)), audit.rows
    pictures = audit.source["kind"] == "folder"
    chosen = rows[rows["is_label_issue"] | rows["row"].isin(list(decided))]
    tasks = [
        _task(audit, line, content, pictures, decided.get(line["row"])) for line in chosen.to_dict("records")
    ]
    write_json(out, tasks)
    write_text(out.with_suffix(".xml"), _configuration(audit, pictures))
    return len(tasks)


def _task(
    audit: StoredAudit, line: Mapping[Any, Any], content: Cached, pictures: bool, found: Decided | None
) -> dict[str, Any]:
    """A row as Label Studio reads it."""
    data: dict[str, Any] = {
        "id": line["id"],
        "given_label": audit.classes[line["given_label"]],
        "quality": round(float(line["quality"]), 6),
        "audit_id": audit.audit_id,
    }
    if pictures:
        data["image"] = f"/data/local-files/?d={quote(line['id'])}"
    else:
        cells = content.view(int(line["row"])).cells
        data["text"] = "\n".join(f"{name}: {text}" for name, text in cells) or line["id"]
    prediction = {
        "model_version": f"noisegate {audit.audit_id}",
        "score": round(float(line["suggested_probability"]), 6),
        "result": [_choice(audit.classes[line["suggested_label"]])],
    }
    task: dict[str, Any] = {"data": data, "predictions": [prediction]}
    if found is not None and found.label >= 0:
        annotation = {
            "result": [_choice(audit.classes[found.label])],
            "created_at": found.at,
            "completed_by": {"email": found.reviewer},
        }
        task["annotations"] = [annotation]
    return task


def _choice(name: str) -> dict[str, Any]:
    return {"from_name": "label", "to_name": "row", "type": "choices", "value": {"choices": [name]}}


def _configuration(audit: StoredAudit, pictures: bool) -> str:
    shown = '<Image name="row" value="$image"/>' if pictures else '<Text name="row" value="$text"/>'
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in audit.classes)
    return f"""<View>
  <Header value="Given label: $given_label"/>
  {shown}
  <Choices name="label" toName="row" choice="single">
{choices}
  </Choices>
</View>
"""


# -- back ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Imported:
    """Outcome of an import: decisions that were stored, already known, or in conflict with those here."""

    stored: int
    known: int
    conflicts: list[Decided]


@dataclass(frozen=True)
class _Said:
    """A line of such a file."""

    id: str
    label: str | None
    given: str | None
    reviewer: str
    at: str | None


def import_decisions(folder: str | Path, path: str | Path, *, overwrite: bool = False) -> Imported:
    """Import decisions from a .csv or .parquet file, or from Label Studio's .json export.

    Rows are matched by their id, and their given labels must agree. Rows with another decision here keep
    it unless `overwrite` is set. Importing the same file again changes nothing.
    """
    audit, path = stored.read(folder), Path(path)
    said = _from_tasks(path) if path.suffix.lower() == ".json" else _from_table(path)
    log = open_log(audit)
    try:
        return _store(audit, log, said, str(path), overwrite)
    finally:
        log.close()


def _from_table(path: Path) -> list[_Said]:
    from noisegate.data import read_table

    frame = read_table(path, texts=COLUMNS)
    lacking = [name for name in ("id", "label") if name not in frame.columns]
    if lacking:
        raise InputError(f"{path} lacks the columns {', '.join(lacking)}; expected {', '.join(COLUMNS)}")
    return [
        _Said(
            str(line["id"]),
            _text(line["label"]),
            _text(line.get("given_label")),
            _text(line.get("reviewer")) or "import",
            _text(line.get("decided_at")),
        )
        for line in frame.to_dict("records")
    ]


def _text(value: Any) -> str | None:
    """A cell as text, None where it is missing; 3.0 is 3, as labels with gaps become in Parquet."""
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _from_tasks(path: Path) -> list[_Said]:
    """The last annotation of every task that has one."""
    tasks = read_json(path)
    if not isinstance(tasks, list):
        raise InputError(f"{path} holds no list of Label Studio tasks")
    found = []
    for task in tasks:
        try:
            done = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
            if not done:
                continue
            values = [r["value"]["choices"][0] for r in done[-1]["result"] if r.get("type") == "choices"]
            by = done[-1].get("completed_by")
            who = by.get("email") if isinstance(by, Mapping) else by
            data = task["data"]
            found.append(
                _Said(
                    str(data["id"]),
                    values[0] if values else None,
                    data.get("given_label"),
                    str(who or "label-studio"),
                    done[-1].get("created_at"),
                )
            )
        except (KeyError, IndexError, TypeError, AttributeError):
            raise InputError(
                f"{path} holds a task that noisegate did not write: {json.dumps(task)[:200]}"
            ) from None
    return found


def _store(audit: StoredAudit, log: Decisions, said: Sequence[_Said], what: str, overwrite: bool) -> Imported:
    rows = {name: row for row, name in enumerate(names_in_order(audit))}
    codes = {str(value): code for code, value in enumerate(audit.label_values)}
    codes |= {name: code for code, name in enumerate(audit.classes)}
    given, suggested = (np.empty(len(audit), np.int64) for _ in range(2))
    order = audit.rows["row"].to_numpy()
    given[order], suggested[order] = audit.rows["given_label"], audit.rows["suggested_label"]
    last = {d.row: d for d in log.last()}
    versions = {d.row: d.id for d in log.since(0)}
    choices, known, conflicts = [], 0, []
    for line in said:
        row = _row_of(line, rows, what)
        if line.given is not None and codes.get(line.given) != given[row]:
            raise InputError(
                f"{what} says that {line.id} was labelled {line.given!r}, but in this audit it is "
                f"{audit.classes[given[row]]!r}; the file is about other data"
            )
        code = -1 if line.label is None else codes.get(line.label)
        if code is None:
            raise InputError(
                f"{what} has the label {line.label!r} for {line.id}, which is no class of the audit"
            )
        now = last.get(row)
        if now is not None and now.label == code and (now.reviewer == line.reviewer or code < 0):
            known += 1
        elif now is not None and not overwrite:
            conflicts.append(now)
        else:
            kind = (
                "skip"
                if code < 0
                else "keep"
                if code == given[row]
                else "accept"
                if code == suggested[row]
                else "choose"
            )
            choices.append(Choice(row, kind, code, versions.get(row, 0), line.reviewer, line.at))
    key = hashlib.sha256(repr((what, log.revision(), choices)).encode()).hexdigest()
    outcome = log.decide(choices, reviewer="import", key=key, kind="import")
    return Imported(len(outcome.changed), known, [*conflicts, *outcome.conflicts])


def _row_of(line: _Said, rows: Mapping[str, int], what: str) -> int:
    if line.id not in rows:
        raise InputError(f"{what} has a decision about {line.id!r}, which is no row of the audit")
    return rows[line.id]
