"""`noisegate predict`: labels and probabilities of new rows."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noisegate import data as datasets
from noisegate import without_torch
from noisegate._io.files import check_writable, write_bytes
from noisegate._io.foreign import reading
from noisegate._io.models import read_classes, read_description, read_weights
from noisegate.cli import output
from noisegate.data.dataset import Inputs, Reader
from noisegate.data.images import ImageReader
from noisegate.data.tables import Met, TableReader
from noisegate.errors import InputError

if TYPE_CHECKING:
    from noisegate.data.maps import MapReader

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

    The columns `ids` of a table are copied to the output. One line counts the values that were not
    in the training data.
    """
    description = read_description(model)
    if (description.get("reader") or {}).get("kind") == "maps":
        return _run_maps(model, data, out, device, root)
    if out is not None:
        check_out(out)
    stored = StoredModel(model, description)
    inputs, named, met = read_inputs(data, stored.reader, model, root, ids)
    columns = predictions(stored.classes, stored.predict_proba(inputs, device), named)
    if str(met):
        output.warn(f"{data}: {met}")
    if out is None:
        with output.writing():
            write_csv(columns, sys.stdout)
        return
    write_bytes(out, as_csv(columns) if out.suffix.lower() == ".csv" else as_parquet(columns))
    output.say(f"{len(inputs):,} rows written to {out}")


def _run_maps(model: Path, data: str, out: Path | None, device: str, root: Path | None) -> None:
    from noisegate._device import resolve_device
    from noisegate.cli import predict_maps
    from noisegate.fitted import Fitted

    fitted = Fitted.load(model, device=resolve_device(device))
    predict_maps.run(fitted, cast("MapReader", fitted.reader), data, out, root)


class StoredModel:
    """A model folder: its reader, classes and predictions. Torch is imported only if a prediction needs it.

    Parameters
    ----------
    folder : Path
    description : mapping
        The content of its `model.json`.
    """

    def __init__(self, folder: Path, description: Mapping[str, Any]) -> None:
        self.folder, self.description = folder, description
        with reading(folder / "model.json", "copy the model again, or train it again"):
            self.tree = read_weights(folder, str(description["weights"]), "np")
            n_classes = int(description["objective"]["settings"]["n_classes"])
            self.classes = read_classes(description["classes"], n_classes, folder)
            stored = description.get("reader")
            self.reader: Reader | None = (
                None if stored is None else datasets.reader_from_dict(stored, self.tree.get("reader", {}))
            )

    def predict_proba(self, inputs: Inputs, device: str = "auto") -> npt.NDArray[Any]:
        """Predict probabilities (N, K) for the rows that the reader returned."""
        if device in ("auto", "cpu") and _is_small(inputs):
            predict = without_torch.predictor(self.description, self.tree)
            if predict is not None:
                return predict(inputs)
        from noisegate._device import resolve_device
        from noisegate.fitted import Fitted

        return Fitted.load(self.folder, device=resolve_device(device)).predict_proba(inputs)


def _is_small(inputs: Inputs) -> TypeGuard[npt.NDArray[Any]]:
    """Whether the inputs are so few vectors that predicting without torch is faster than importing it."""
    return isinstance(inputs, np.ndarray) and inputs.ndim == 2 and len(inputs) <= without_torch.MOST_ROWS


def check_out(out: Path) -> None:
    """Raise InputError for an unsupported output format, before any work is done."""
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out must end in {' or '.join(SUFFIXES)}, got {out}")
    if out.is_dir():
        raise InputError(f"--out names a file, but {out} is a folder")
    check_writable(out.parent)


def read_inputs(
    data: str, reader: Reader | None, model: Path, root: Path | None, ids: Sequence[str] = ()
) -> tuple[Inputs, dict[str, Any], Met]:
    """Return the inputs, the columns that identify the rows, and the counts of values unseen in training."""
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
        carried = {name: frame.column(name) for name in ids}
        return x, {"row": frame.row(0) + np.arange(len(frame)), **carried}, met
    inputs = reader.read(data)
    if isinstance(reader, ImageReader) and not data.lower().endswith((".npz", ".npy")):
        return inputs, {"file": np.array(reader.names(data))}, Met()
    return inputs, {"row": np.arange(len(inputs))}, Met()


def predictions(classes: Sequence[Any], probs: npt.NDArray[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns: the identifiers, the most probable label, and the probability of every class."""
    predicted: dict[str, Any] = {"label": np.asarray(classes)[probs.argmax(axis=1)]}
    predicted |= {f"p_{value}": probs[:, k] for k, value in enumerate(classes)}
    twice = sorted(named.keys() & predicted.keys())
    if twice:
        raise InputError(
            f"--id {twice[0]}: the predictions have a column of that name; rename it in the data"
        )
    return {**named, **predicted}


def write_csv(columns: Mapping[str, Any], file: TextIO) -> None:
    """Write columns as CSV: probabilities with six digits, everything else in full."""
    texts = [
        [f"{p:.6g}" for p in values.tolist()]
        if name.startswith("p_") and isinstance(values, np.ndarray)
        else ["" if value is None else str(value) for value in _values(values)]
        for name, values in columns.items()
    ]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*texts, strict=True))


def _values(values: Any) -> list[Any]:
    """The values of a column, None where one is missing; times as text without their trailing zeros."""
    if not isinstance(values, pa.ChunkedArray):
        return list(values.tolist() if values.dtype.kind != "M" else values.astype(str).tolist())
    times = pa.types.is_temporal(values.type)
    return list((values.cast(pa.string()) if times else values).to_pylist())


def as_csv(columns: Mapping[str, Any]) -> bytes:
    """The content of a CSV file."""
    text = io.StringIO(newline="")
    write_csv(columns, text)
    return text.getvalue().encode()


def as_parquet(columns: Mapping[str, Any]) -> bytes:
    """The content of a Parquet file; copied columns keep their type."""
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.table(dict(columns)), buffer)
    return buffer.getvalue()
