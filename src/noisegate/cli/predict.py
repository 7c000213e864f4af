"""`noisegate predict`: labels and probabilities of new rows."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate import data as datasets
from noisegate._io.files import check_writable, write_bytes
from noisegate.cli import output
from noisegate.data.dataset import Inputs
from noisegate.data.images import ImageReader
from noisegate.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from noisegate.fitted import Fitted

SUFFIXES = (".csv", ".parquet")


def run(model: Path, data: str, *, out: Path | None, device: str = "auto", root: Path | None = None) -> None:
    """Predict the rows of `data` and write them to `out`, or as CSV to standard output."""
    if out is not None:
        check_out(out)
    from noisegate._device import resolve_device
    from noisegate.fitted import Fitted, read_description

    description = read_description(model)
    fitted = Fitted.load(model, device=resolve_device(device))
    inputs, column, names = read_inputs(data, description.get("reader"), model, root)
    frame = table_of(fitted, inputs, column, names)
    if out is None:
        frame.to_csv(sys.stdout, index=False, float_format="%.6g", lineterminator="\n")
        return
    buffer = io.BytesIO()
    if out.suffix.lower() == ".csv":
        frame.to_csv(buffer, index=False, float_format="%.6g", lineterminator="\n")
    else:
        frame.to_parquet(buffer, index=False)
    write_bytes(out, buffer.getvalue())
    output.say(f"{len(frame):,} rows written to {out}")


def check_out(out: Path) -> None:
    """Refuse a file of a kind that is not written, before the work."""
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out must end in {' or '.join(SUFFIXES)}, got {out}")
    if out.is_dir():
        raise InputError(f"--out names a file, but {out} is a folder")
    check_writable(out.parent)


def read_inputs(
    data: str, reader: dict[str, Any] | None, model: Path, root: Path | None
) -> tuple[Inputs, str, Any]:
    """Inputs, the name of the column that tells the rows apart, and what stands in it."""
    if data in datasets.DATASETS:
        named = datasets.load(data, root=root)
        rows = named.train if named.test is None else named.test
        return rows.x, "row", np.arange(len(rows))
    if not isinstance(reader, dict):
        raise InputError(
            f"the model in {model} was not fitted from files, so it cannot read {data}; use Python"
        )
    built = datasets.reader_from_dict(reader)
    inputs = built.read(data)
    if isinstance(built, ImageReader) and not data.lower().endswith((".npz", ".npy")):
        return inputs, "file", built.names(data)
    return inputs, "row", np.arange(len(inputs))


def table_of(fitted: Fitted, inputs: Inputs, column: str, names: Any) -> pd.DataFrame:
    """One line a row: its name, the most probable label, the probability of every class."""
    import pandas as pd

    probs = fitted.predict_proba(inputs)
    labels = np.asarray(fitted.classes)[probs.argmax(axis=1)]
    columns: dict[str, Any] = {column: names, "label": labels}
    columns |= {f"p_{value}": probs[:, k] for k, value in enumerate(fitted.classes)}
    return pd.DataFrame(columns)
