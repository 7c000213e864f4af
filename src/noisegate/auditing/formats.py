"""Write corrected labels in the format of the original, without changing anything else.

A changed cell gets the spelling that the new class has elsewhere in the same file (the bytes of the cell
in CSV, the value in Parquet and .npz), so that types, quotes and number formats are preserved.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisegate._io.files import atomic, write_text
from noisegate.auditing.cells import CsvFile
from noisegate.auditing.content import names_in_order
from noisegate.auditing.regions import MASKS, write_masks
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import DamagedFileError, InputError

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Correction:
    """Which labels change.

    Attributes
    ----------
    audit : StoredAudit
    given : int64 array (N,)
        Codes of the given labels, in the order of the data.
    changes : mapping
        Rows of the data and the codes of their new labels.
    """

    audit: StoredAudit
    given: Codes
    changes: Mapping[int, int]

    @classmethod
    def of(cls, audit: StoredAudit, changes: Mapping[int, int]) -> Correction:
        """From an audit and what was decided."""
        given = np.empty(len(audit), np.int64)
        given[audit.rows["row"].to_numpy()] = audit.rows["given_label"].to_numpy()
        return cls(audit, given, changes)

    @property
    def source(self) -> Path:
        """The original file or folder."""
        return Path(str(self.audit.source["path"]))

    def examples(self) -> dict[int, int]:
        """For each needed class, a row with that label."""
        found = {}
        for code in set(self.changes.values()):
            rows = np.flatnonzero(self.given == code)
            if not len(rows):
                raise InputError(
                    f"no row is labelled {self.audit.classes[code]!r}, so its spelling is not known"
                )
            found[code] = int(rows[0])
        return found

    def sources(self) -> Codes:
        """For each row the row whose label it gets: itself, or an example of its new class."""
        examples, rows = self.examples(), np.arange(len(self.given))
        for row, code in self.changes.items():
            rows[row] = examples[code]
        return rows

    def after(self) -> Codes:
        """Codes of the labels after the correction."""
        codes = self.given.copy()
        codes[list(self.changes)] = list(self.changes.values())
        return codes


# -- tables ----------------------------------------------------------------------------------------


def write_csv(what: Correction, out: Path) -> None:
    """A .csv or .tsv file in which only the changed cells differ, byte for byte."""
    file = CsvFile(what.source, len(what.given))
    column = file.header.index(str(what.audit.source["label"]))
    cells = {code: file.content[slice(*file.span(row, column))] for code, row in what.examples().items()}
    spans = sorted((*file.span(row, column), code) for row, code in what.changes.items())

    def parts() -> Iterator[bytes]:
        here = 0
        for start, end, code in spans:
            yield file.content[here:start]
            yield cells[code]
            here = end
        yield file.content[here:]

    with atomic(out) as target:
        if out.name.lower().endswith(".gz"):
            # Without time and name in the gzip header, the same decisions give the same bytes.
            with gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed:
                packed.writelines(parts())
        else:
            target.writelines(parts())


def write_parquet(what: Correction, out: Path) -> None:
    """A Parquet file with the original's schema, row groups and compression."""
    import pyarrow.parquet as pq

    from noisegate.data.tables.parquet import native_file, read_whole

    table = read_whole(what.source)
    with native_file(what.source) as file:
        metadata = pq.read_metadata(file)
    place = table.schema.get_field_index(str(what.audit.source["label"]))
    labels = table.column(place).unify_dictionaries().take(what.sources())
    table = table.set_column(place, table.schema.field(place), labels)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    compression = groups[0].column(0).compression if groups else "SNAPPY"
    packing = "none" if compression == "UNCOMPRESSED" else compression.lower()
    with atomic(out) as target, pq.ParquetWriter(target, table.schema, compression=packing) as writer:
        start = 0
        for group in groups:
            writer.write_table(table.slice(start, group.num_rows), row_group_size=max(group.num_rows, 1))
            start += group.num_rows


def write_npz(what: Correction, out: Path) -> None:
    """An .npz file with another array of labels; the other arrays are copied."""
    from noisegate.data.arrays import _Y_NAMES, read_npz

    read_npz(what.source)  # checks sizes and checksums
    with zipfile.ZipFile(what.source) as source, atomic(out) as target:
        members = source.namelist()
        label = next(f"{name}.npy" for name in _Y_NAMES if f"{name}.npy" in members)
        with zipfile.ZipFile(target, "w") as packed:
            for member in source.infolist():
                content = source.read(member)
                if member.filename == label:
                    y = np.load(io.BytesIO(content), allow_pickle=False)
                    buffer = io.BytesIO()
                    np.save(buffer, y[what.sources()], allow_pickle=False)
                    content = buffer.getvalue()
                packed.writestr(member, content, compress_type=member.compress_type)


# -- folders of images -----------------------------------------------------------------------------


def moves(what: Correction) -> dict[str, str]:
    """Old and new paths of the files whose class changes, relative to the folder.

    A name that is taken in the new class's folder gets a number.
    """
    names, classes = names_in_order(what.audit), what.audit.classes
    parts = [name.split(os.sep) for name in names]
    first = all(part[0] == classes[code] for part, code in zip(parts, what.given.tolist(), strict=True))
    depth = 0 if first else 1
    taken, found = set(names), {}
    for row, code in sorted(what.changes.items()):
        part = list(parts[row])
        if len(part) <= depth + 1 or part[depth] != classes[what.given[row]]:
            raise DamagedFileError(
                f"{names[row]} does not lie in the folder of its class; audit the data again"
            )
        part[depth] = classes[code]
        stem, suffix = os.path.splitext(os.path.join(*part))
        new, number = stem + suffix, 2
        while new in taken:
            new, number = f"{stem}-{number}{suffix}", number + 1
        taken.add(new)
        found[names[row]] = new
    return found


def write_moves(what: Correction, out: Path) -> None:
    """A CSV file that says which image goes where: from, to, relative to the folder."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["from", "to"])
    writer.writerows(moves(what).items())
    write_text(out, buffer.getvalue())


def write_folder(what: Correction, out: Path) -> None:
    """A copy of the folder in which changed images lie with their new class."""
    keys = _key_file(what.source)
    going = {} if keys else moves(what)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Write beside the target and rename at the end, so that an interrupted copy is never taken for complete.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".part", dir=out.parent) as scratch:
        target = Path(scratch) / "copy"
        links = bool(what.audit.source.get("options", {}).get("follow_links"))
        for relative in files_of(what.source, links):
            place = target / going.get(relative, relative)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(what.source / relative, place)
        if keys:
            _write_keys(what, keys, target)
        os.replace(target, out)


def files_of(folder: Path, follow_links: bool) -> Iterator[str]:
    """Every file of a folder, relative to it; a link that leads out of it is refused."""
    real = os.path.realpath(folder) + os.sep
    for here, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files) + folders:
            path = os.path.join(here, name)
            if os.path.islink(path) and not follow_links and not os.path.realpath(path).startswith(real):
                raise InputError(f"{path} is a link out of {folder}; it is not copied")
        inside = [name for name in folders if not here.startswith(os.path.realpath(os.path.join(here, name)))]
        folders[:] = inside  # a link to a parent folder would never end
        yield from (os.path.relpath(os.path.join(here, name), folder) for name in sorted(files))


def _key_file(folder: Path) -> str | None:
    """Clothing1M keeps labels in a file beside the images; its path, relative to the folder."""
    names = ("noisy_label_kv.txt", os.path.join("annotations", "noisy_label_kv.txt"))
    return next((name for name in names if (folder / name).is_file()), None)


def _write_keys(what: Correction, keys: str, target: Path) -> None:
    names = names_in_order(what.audit)
    new = {names[row]: code for row, code in what.changes.items()}
    lines = (what.source / keys).read_bytes().decode("utf-8").splitlines(keepends=True)

    def changed(line: str) -> str:
        key, _, label = line.rpartition(" ")
        return line if key not in new else f"{key} {new[key]}{label[len(label.rstrip()) :]}"

    write_text(target / keys, "".join(map(changed, lines)))


# -- which format ----------------------------------------------------------------------------------

_SUFFIXES: Mapping[str, Sequence[str]] = {
    "csv": (".csv", ".csv.gz"),
    "tsv": (".tsv", ".tsv.gz"),
    "parquet": (".parquet", ".pq"),
    "npz": (".npz",),
}
_WRITERS = {"csv": write_csv, "tsv": write_csv, "parquet": write_parquet, "npz": write_npz}


def format_of(path: Path) -> str:
    """The format of a file by its name; "folder" where it has none of the suffixes.

    >>> format_of(Path("a.CSV.gz")), format_of(Path("b.pq")), format_of(Path("images"))
    ('csv', 'parquet', 'folder')
    """
    lower = path.name.lower()
    return next((name for name, ends in _SUFFIXES.items() if lower.endswith(tuple(ends))), "folder")


def write(what: Correction, out: Path) -> None:
    """Write the corrected data; `out` must have the format of the original."""
    if what.audit.source["kind"] == MASKS:
        write_masks(what.audit, what.changes, out)
        return
    kind = "folder" if what.audit.source["kind"] == "folder" else format_of(what.source)
    if kind == "folder":
        write_folder(what, out)
        return
    if format_of(out) != kind:
        raise InputError(
            f"the corrected data have the format of the original: --out must end in "
            f"{' or '.join(_SUFFIXES[kind])}, got {out}"
        )
    _WRITERS[kind](what, out)
