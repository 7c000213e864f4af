"""`noisegate predict`: labels and probabilities of new rows."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate import data as datasets
from noisegate._io.files import check_writable, write_bytes
from noisegate.cli import output
from noisegate.data.dataset import Inputs, Reader
from noisegate.data.images import ImageReader
from noisegate.data.maps import MapReader
from noisegate.data.tables import Met, TableReader
from noisegate.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from noisegate.fitted import Fitted

SUFFIXES = (".csv", ".parquet")


def run(
    model: Path,
    data: str,
    *,
    out: Path | None,
    device: str = "auto",
    root: Path | None = None,
    ids: Sequence[str] = (),
) -> None:
    """Predict the rows of `data` and write them to `out`, or as CSV to standard output.

    The columns `ids` of a table are carried through. What training did not have is counted in one
    line.
    """
    from noisegate._device import resolve_device
    from noisegate.fitted import Fitted, read_description

    if (read_description(model).get("reader") or {}).get("kind") == "maps":
        from noisegate.cli import predict_maps

        fitted = Fitted.load(model, device=resolve_device(device))
        if isinstance(fitted.reader, MapReader):
            return predict_maps.run(fitted, fitted.reader, data, out)
    if out is not None:
        check_out(out)
    fitted = Fitted.load(model, device=resolve_device(device))
    inputs, named, met = read_inputs(data, fitted.reader, model, root, ids)
    frame = table_of(fitted, inputs, named)
    if str(met):
        output.warn(f"{data}: {met}")
    if out is None:
        with output.writing():
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
    data: str, reader: Reader | None, model: Path, root: Path | None, ids: Sequence[str] = ()
) -> tuple[Inputs, dict[str, Any], Met]:
    """Inputs, the columns that tell the rows apart, and what training did not have."""
    if ids and not isinstance(reader, TableReader):
        raise InputError("--id is for tables: other data have no columns to carry through")
    if data in datasets.DATASETS:
        named = datasets.load(data, root=root)
        rows = named.train if named.test is None else named.test
        return rows.x, {"row": np.arange(len(rows))}, Met()
    if reader is None:
        raise InputError(
            f"the model in {model} was not fitted from files, so it cannot read {data}; use Python"
        )
    if isinstance(reader, TableReader):
        x, met, frame = reader.read_noting(data, ids)
        carried = {name: frame.column(name).to_numpy() for name in ids}
        return x, {"row": frame.row(0) + np.arange(len(frame)), **carried}, met
    inputs = reader.read(data)
    if isinstance(reader, ImageReader) and not data.lower().endswith((".npz", ".npy")):
        return inputs, {"file": reader.names(data)}, Met()
    return inputs, {"row": np.arange(len(inputs))}, Met()


def table_of(fitted: Fitted, inputs: Inputs, named: dict[str, Any]) -> pd.DataFrame:
    """One line a row: what tells it apart, the most probable label, the probability of every class."""
    import pandas as pd

    probs = fitted.predict_proba(inputs)
    predicted: dict[str, Any] = {"label": np.asarray(fitted.classes)[probs.argmax(axis=1)]}
    predicted |= {f"p_{value}": probs[:, k] for k, value in enumerate(fitted.classes)}
    twice = sorted(named.keys() & predicted.keys())
    if twice:
        raise InputError(
            f"--id {twice[0]}: the predictions have a column of that name; rename it in the data"
        )
    return pd.DataFrame(named | predicted)
