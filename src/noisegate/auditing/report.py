"""The report of an audit: one self-contained HTML file, and a JSON file with all that it shows.

`document` collects what the report shows as plain data, which is also the JSON file; `render` fills the
templates with it. The templates escape text from the data, and the page's content security policy allows
only its own script and style.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from noisegate._io.files import write_json, write_text
from noisegate._version import __version__
from noisegate.auditing import charts, stored, words
from noisegate.auditing.content import Cached, View, open_content
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError, NoisegateError

#: Number of rows shown in full detail.
WORST = 100
#: Number of neighbours shown with each.
NEAR = 4
_BINS = 20
_CELL_CHARACTERS, _CELLS = 400, 30
_PICTURE, _SMALL_PICTURE = 192, 96


def document(audit: StoredAudit, *, root: Path | None = None, worst: int = WORST) -> dict[str, Any]:
    """Everything the report shows, as plain data.

    Parameters
    ----------
    audit : StoredAudit
    root : path, default=None
        Where named data sets lie.
    worst : int, default=100
        How many rows are shown in detail, the worst first.
    """
    if worst < 1:
        raise InputError(f"the report shows at least one row, got worst={worst}")
    info, source = audit.info, audit.source
    name = words.data_name(audit)
    shown = _Rows(audit, Cached(open_content(audit, root)))
    return {
        "title": f"Audit of {name}",
        "audit_id": audit.audit_id,
        "created_at": info.get("created_at"),
        "noisegate": __version__,
        "called": stored.called(source),
        "source": {
            "name": name,
            "kind": source["kind"],
            "label": source.get("label"),
            "rows": len(audit),
            "classes": len(audit.classes),
        },
        "classes": audit.classes if len(audit.classes) <= 1000 else audit.classes[:1000],
        "unit": words.unit(audit),
        "row_word": words.row_word(audit),
        "summary": words.summary(audit),
        "notes": list(info.get("notes") or []),
        "noise_rate": info.get("noise_rate"),
        "errors": info.get("errors"),
        "precision": info.get("precision"),
        "flagged": {
            "look": int(audit.rows["is_label_issue"].sum()),
            "sure": int(audit.rows["is_sure"].sum()),
        },
        "transition": _transition(audit),
        "confused": [
            pair | {"true": audit.classes[pair["true"]], "given": audit.classes[pair["given"]]}
            for pair in (info.get("confused") or [])[:20]
        ],
        "quality": _quality(audit),
        "curve": info.get("curve") if (info.get("curve") or {}).get("looked") else None,
        "instance_dependence": info.get("instance_dependence"),
        "cleaning": info.get("cleaning"),
        "truth": info.get("truth"),
        "duplicates": [
            [shown.brief(row) for row in group["rows"][:6]] for group in (info.get("duplicates") or [])[:20]
        ],
        "duplicates_total": info.get("duplicates_total") or len(info.get("duplicates") or []),
        "images": info.get("images"),
        "colours": [
            {"class": name, "colour": "#{:02x}{:02x}{:02x}".format(*colour)}
            for name, colour in zip(audit.classes, info.get("colours", ()), strict=False)
        ],
        "rows": [shown.full(rank) for rank in range(min(worst, len(audit)))],
        "settings": {str(key): value for key, value in (info.get("settings") or {}).items()},
        "folder": None if audit.folder is None else audit.folder.name,
    }


def _transition(audit: StoredAudit) -> dict[str, Any] | None:
    found = audit.info.get("transition")
    if not found:
        return None
    matrices = {key: np.asarray(value, np.float64) for key, value in found.items()}
    codes = charts.chosen_classes(matrices["value"], audit.info.get("confused") or [])
    part = {key: np.round(matrix[np.ix_(codes, codes)], 6).tolist() for key, matrix in matrices.items()}
    return {
        "classes": [audit.classes[code] for code in codes],
        "complete": len(codes) == len(audit.classes),
    } | part


def _quality(audit: StoredAudit) -> list[dict[str, Any]]:
    """Counts of rows by quality, flagged and others."""
    quality, look = audit.rows["quality"].to_numpy(np.float64), audit.rows["is_label_issue"].to_numpy()
    edges = np.linspace(0, 1, _BINS + 1)
    flagged, others = (np.histogram(np.clip(quality[mask], 0, 1), edges)[0] for mask in (look, ~look))
    return [
        {"from": round(float(low), 3), "to": round(float(high), 3), "flagged": int(f), "others": int(o)}
        for low, high, f, o in zip(edges[:-1], edges[1:], flagged, others, strict=True)
    ]


class _Rows:
    """Rows of the data as the report shows them."""

    def __init__(self, audit: StoredAudit, content: Cached) -> None:
        self.audit, self.content = audit, content
        self.rank = np.empty(len(audit), np.int64)
        self.rank[audit.rows["row"].to_numpy()] = np.arange(len(audit))
        self.given = audit.rows["given_label"].to_numpy()

    def brief(self, row: int) -> dict[str, Any]:
        """A row beside others: what it is and how it is labelled."""
        rank = int(self.rank[row])
        return {
            "row": int(row),
            "id": str(self.audit.rows["id"].iat[rank]),
            "given_label": self.audit.classes[self.given[rank]],
        } | self._shown(int(row), _SMALL_PICTURE, 6)

    def full(self, rank: int) -> dict[str, Any]:
        """A suspicious row with its neighbours."""
        line, classes = self.audit.rows.iloc[rank], self.audit.classes
        row, given = int(line["row"]), int(line["given_label"])
        near = [] if self.audit.neighbours is None else self.audit.neighbours.of(row)[:NEAR]
        told = {
            "rank": rank + 1,
            "row": row,
            "id": str(line["id"]),
            "given_label": classes[given],
            "suggested_label": classes[int(line["suggested_label"])],
            "suggested_probability": round(float(line["suggested_probability"]), 4),
            "quality": round(float(line["quality"]), 4),
            "p_wrong": round(float(line["p_wrong"]), 4),
            "is_label_issue": bool(line["is_label_issue"]),
            "is_sure": bool(line["is_sure"]),
            "neighbours": [self._neighbour(other, similarity, given) for other, similarity in near],
        }
        if "true_label" in self.audit.rows.columns:
            told["true_label"] = classes[int(line["true_label"])]
        return told | self._shown(row, _PICTURE, _CELLS)

    def _neighbour(self, row: int, similarity: float, given: int) -> dict[str, Any]:
        disagrees = bool(self.given[self.rank[row]] != given)
        return self.brief(row) | {"similarity": round(similarity, 4), "disagrees": disagrees}

    def _shown(self, row: int, size: int, most: int) -> dict[str, Any]:
        view = self.content.view(row)
        cells = [[name, _cut(text)] for name, text in list(view.cells)[:most]]
        pictures, problem = self._pictures(row, view, size)
        return {"cells": cells, "pictures": pictures, "pixelated": view.pixelated, "problem": problem}

    def _pictures(self, row: int, view: View, size: int) -> tuple[list[dict[str, str]], str]:
        found = []
        try:
            for layer in view.layers:
                data = self.content.picture(row, layer, size)
                kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
                found.append(
                    {"layer": layer, "src": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}
                )
        except NoisegateError as error:
            return [], str(error)
        return found, view.problem


def _cut(text: str) -> str:
    return text if len(text) <= _CELL_CHARACTERS else text[:_CELL_CHARACTERS] + " …"


def render(content: Mapping[str, Any]) -> str:
    """The page of a `document`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("noisegate.auditing", "templates"),
        # Escape always: jinja2 does not recognise HTML templates that end in .j2.
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"share": words.share, "number": words.number, "p_value": words.p_value}
    files = resources.files("noisegate.auditing") / "templates"
    style, script = ((files / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    transition, curve = content["transition"], content["curve"]
    bars = [(b["from"], b["to"], b["flagged"], b["others"]) for b in content["quality"]]
    return environment.get_template("report.html.j2").render(
        content,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        heatmap=None
        if not transition
        else charts.heatmap(np.asarray(transition["value"]), transition["classes"]),
        histogram=charts.histogram(bars),
        curve_picture=None if not curve else charts.curve(curve),
    )


def _hash(text: str) -> str:
    """The hash by which a content security policy allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_report(folder: str | Path, *, root: Path | None = None, worst: int = WORST) -> Path:
    """Write report.html and report.json into an audit folder; the path of the page.

    Parameters
    ----------
    folder : path
        An audit folder.
    root : path, default=None
        Where named data sets lie.
    worst : int, default=100
        How many rows are shown in detail.
    """
    content = document(stored.read(folder), root=root, worst=worst)
    write_json(Path(folder) / "report.json", content)
    page = Path(folder) / "report.html"
    write_text(page, render(content))
    return page
