"""A study's figures, drawn from stored results, as PNG and SVG."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noisegate._io.files import write_bytes
from noisegate.errors import InputError
from noisegate.studies.results import Results
from noisegate.studies.study import Figure, slug

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FOLDER = "figures"


@dataclass(frozen=True)
class Drawn:
    """A figure as files, or the reason why it could not be drawn.

    Attributes
    ----------
    figure : Figure
    png : bytes
        Empty if it could not be drawn.
    missing : str
        The reason; empty if it was drawn.
    """

    figure: Figure
    png: bytes = b""
    svg: bytes = b""
    missing: str = ""

    @property
    def path(self) -> str:
        """Path of the PNG, relative to the report."""
        return f"{FOLDER}/{slug(self.figure.name)}.png"


def draw_figures(results: Results, mark: str = "") -> list[Drawn]:
    """Draw every figure of a study, with a mark in a corner.

    `missing` says why one cannot be drawn.
    """
    from noisegate.reporting.plots import png

    drawn = []
    columns = {cell.column for cell in results.study}
    for figure in results.study.figures:
        if figure.column and figure.column not in columns:
            continue
        try:
            picture = figure.draw(results)
        except InputError as error:
            drawn.append(Drawn(figure, missing=str(error)))
        except KeyError as error:  # runs with other settings may lack a number
            drawn.append(Drawn(figure, missing=f"the runs do not have {error}"))
        else:
            if mark and results.study.cells:
                data = ", ".join(dict.fromkeys(str(cell.settings.data["name"]) for cell in results.study))
                picture.text(
                    0.995, 0.005, f"{mark}; on {data}", ha="right", va="bottom", fontsize=6, color="gray"
                )
            drawn.append(Drawn(figure, png(picture), svg(picture)))
    return drawn


def svg(picture: Picture) -> bytes:
    """The figure as SVG; the same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    # By default matplotlib salts ids with random numbers and writes the date.
    with matplotlib.rc_context({"svg.hashsalt": "noisegate"}):
        picture.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def save_figures(drawn: list[Drawn], folder: Path) -> list[Path]:
    """Write the files, and delete those of figures that can no longer be drawn."""
    written = []
    for item in drawn:
        png = folder / item.path
        for path, content in ((png, item.png), (png.with_suffix(".svg"), item.svg)):
            if content:
                write_bytes(path, content)
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written
