"""The model card: what a model folder holds, for people (README.md) and for model hubs (its header)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from noisegate._io.files import write_text
from noisegate.data.tables.encoding import KINDS
from noisegate.evaluation.held_out import held_out
from noisegate.networks.ensemble import title

_METRICS = {
    "test_accuracy": "accuracy on the test rows",
    "test_log_likelihood": "log-likelihood on the test rows",
    "test_ece": "calibration error on the test rows",
}


_HEADER = "---\nlibrary_name: noisegate\n"


def write_card(path: Path, description: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
    """Write the model card; a README.md of the user's own stays as it is."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_HEADER):
        return
    write_text(path, model_card(description, extras))


def model_card(description: Mapping[str, Any], extras: Mapping[str, Any]) -> str:
    """A model folder in Markdown: data, labels, the noise that was found, method, metrics and versions.

    Parameters
    ----------
    description : mapping
        The content of `model.json`.
    extras : mapping
        What the method learnt beside the classifier.
    """
    record = description.get("record") or {}
    identity = record.get("identity") or {}
    maps = (description.get("reader") or {}).get("kind") == "maps"
    parts = [
        _HEADER + f"tags:\n- noisy-labels\n- {'image-segmentation' if maps else 'classification'}\n---",
        f"# A {'segmentation network' if maps else 'classifier'} trained on labels that are partly wrong",
        _table("Data", _data(description, record)),
        _columns(description.get("reader") or {}),
        _table("Noise found", _noise(extras)),
        _table("Method", _method(identity, description)),
        _table("Metrics", _metrics(description, extras)),
        _table("Versions", [("noisegate", description.get("noisegate")), *(record.get("versions") or {}).items()]),
        "## Use\n\n```python\nimport noisegate as ng\n\nfitted = ng.Fitted.load(\"this folder\")\n"
        "fitted.predict_proba(x)\n```\n\nLoading executes nothing that is in this folder.",
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(title: str, rows: list[tuple[Any, Any]]) -> str:
    """A section with a table of two columns; nothing where there is nothing to say."""
    rows = [(name, value) for name, value in rows if value not in (None, "", {})]
    if not rows:
        return ""
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *lines])


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())


def _data(description: Mapping[str, Any], record: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    data = (record.get("identity") or {}).get("data") or {}
    classes = list(map(str, description.get("classes") or []))
    rows = ", ".join(f"{count:,} {part}" for part, count in (record.get("rows") or {}).items())
    shown = ", ".join(classes[:20]) + (f" and {len(classes) - 20} more" if len(classes) > 20 else "")
    return [
        ("name", data.get("name")),
        ("rows", rows),
        ("hash of the training rows", data.get("train")),
        ("column of labels", (description.get("reader") or {}).get("label")),
        ("classes", f"{len(classes)}: {shown}"),
    ]


def _columns(reader: Mapping[str, Any]) -> str:
    """The columns of a table: which are used, and why others are not."""
    if reader.get("kind") != "table":
        return ""
    rows = [(column["name"], _words(column)) for column in reader["columns"]]
    rows += [(name, f"not used: {why}") for name, why in reader["dropped"].items()]
    return _table("Columns", rows)


def _words(column: Mapping[str, Any]) -> str:
    """What a column was read as."""
    kind = KINDS[column["kind"]]
    return kind(**{one.name: column[one.name] for one in fields(kind) if one.name in column}).words()


def _noise(extras: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    found = held_out(extras)
    if found is None or found.noise_rate is None:
        return []
    return [
        ("estimated share of wrong labels", f"{found.noise_rate:.1%}"),
        ("labels that look wrong", None if found.issues is None else f"{found.issues:,} of {found.n:,}"),
    ]


def _method(identity: Mapping[str, Any], description: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    method, recipe = identity.get("method") or {}, identity.get("recipe") or {}
    spec = description.get("network") or {}
    return [
        ("method", ", ".join(f"{name}: {value}" for name, value in method.items())),
        ("objective", (description.get("objective") or {}).get("name")),
        ("network", title(spec["network"]) if "network" in spec else None),
        ("recipe", ", ".join(f"{name}: {value}" for name, value in recipe.items() if value is not None)),
        ("seed", identity.get("seed")),
    ]


def _metrics(description: Mapping[str, Any], extras: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    found, metrics = held_out(extras), description.get("metrics") or {}
    rows = [(name, f"{metrics[key]:.4f}") for key, name in _METRICS.items() if key in metrics]
    if found is not None:
        rows.append(("accuracy on given labels of unseen rows", f"{found.accuracy:.4f}"))
        rows.append(("log-likelihood of given labels of unseen rows", f"{found.log_likelihood:.4f}"))
        if found.clean_accuracy is not None:
            rows.append(("accuracy on true labels, estimated", f"about {found.clean_accuracy:.2f}"))
    return rows
