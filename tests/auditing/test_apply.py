"""Corrected data differ from the original in the decided labels alone, and the original does not change."""

import gzip
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisegate import data as datasets
from noisegate.auditing import formats, stored
from noisegate.auditing.apply import apply, log_path
from noisegate.auditing.content import names_in_order
from noisegate.errors import DamagedFileError, InputError, MissingDataError


def given_of(folder):
    return stored.read(folder).rows.sort_values("row")["given_label"].to_numpy()


def some_changes(folder, k=3):
    """{row: (decision, label)}: five labels change, one is kept, one row is skipped."""
    given = given_of(folder)
    changes = {row: ("choose", int((given[row] + 1) % k)) for row in (0, 3, 4, 17, 29)}
    return changes | {5: ("keep", int(given[5])), 6: ("skip", -1)}


def test_csv_changes_only_the_cells_that_were_decided(table_audit, decide, tmp_path):
    folder, path = table_audit(40, cells=['say "hi", you', "two\nlines", " 1.10 "])
    raw = path.read_bytes()
    changes = some_changes(folder)
    decide(folder, changes)
    done = apply(folder, tmp_path / "new.csv")
    assert (done.changed, done.decided) == (5, 6)
    assert path.read_bytes() == raw
    classes, given = stored.read(folder).classes, given_of(folder)
    lines = raw.decode().split("\n")
    new = (tmp_path / "new.csv").read_text().split("\n")
    assert len(lines) == len(new)
    different = [(a, b) for a, b in zip(lines, new, strict=True) if a != b]
    assert len(different) == 5
    for row, (a, b) in zip(sorted(changes)[:3], different, strict=False):
        assert a.removesuffix(classes[given[row]]) == b.removesuffix(classes[changes[row][1]])
    log = pd.read_csv(done.log)
    assert log["row"].tolist() == [0, 3, 4, 17, 29]
    assert log["given_label"].tolist() == [classes[given[row]] for row in log["row"]]
    assert log["label"].tolist() == [classes[changes[row][1]] for row in log["row"]]
    assert set(log["reviewer"]) == {"ana"}


HEADER = '\ufeffx,"la ""bel""",y\r\n'
AWKWARD = f'{HEADER}1,"A, b",2\r\n\r\n3,c ,4\r\n   \r\n"5\r\n5","A, b",""\r\n6," 007",7\r\n8, 007,9'


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
def test_awkward_bytes_stay(tmp_path, decide, suffix):
    text = AWKWARD.replace(",", "\t") if suffix == ".tsv" else AWKWARD
    path = tmp_path / f"data{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    data = datasets.load(path, label='la "bel"')
    source = stored.source_of("table", path, 5, label='la "bel"')
    info = {
        "audit_id": "a" * 12,
        "source": source,
        "classes": list(data.classes),
        "label_values": data.label_values,
    }
    rows = pd.DataFrame({"row": np.arange(5), "id": list("01234"), "given_label": data.train.y})
    for name, kind in stored.COLUMNS.items():
        if name not in rows:
            rows[name] = np.zeros(5, kind)
    folder = stored.write(tmp_path / "audit", stored.StoredAudit(info, rows))
    target = data.classes.index(" 007")
    decide(folder, {1: ("choose", target), 2: ("choose", target)})
    apply(folder, tmp_path / f"new{suffix}")
    new = (tmp_path / f"new{suffix}").read_bytes()
    new = gzip.decompress(new) if suffix.endswith("gz") else new
    mark = "\t" if suffix == ".tsv" else ","
    quoted = f'"A{mark} b"'
    expected = text.replace(f"3{mark}c {mark}4", f'3{mark}" 007"{mark}4').replace(
        f'"5\r\n5"{mark}{quoted}', f'"5\r\n5"{mark}" 007"'
    )
    assert new.decode() == expected


@pytest.mark.parametrize("kind", ["text", "int", "bool", "dictionary"])
def test_parquet_keeps_schema_and_row_groups(table_audit, decide, tmp_path, kind):
    folder, csv = table_audit(60)
    audit, given = stored.read(folder), given_of(folder)
    frame = pd.read_csv(csv)
    values = {
        "text": ["bird", "cat", "dog"],
        "dictionary": ["bird", "cat", "dog"],
        "int": [3, 5, 9],
        "bool": [False, True, True],
    }[kind]
    codes = np.minimum(given, 1) if kind == "bool" else given
    column = pa.array([values[code] for code in codes])
    column = column.dictionary_encode() if kind == "dictionary" else column
    column = column.cast(pa.int16()) if kind == "int" else column
    table = pa.table({"kind": column, "size": pa.array(frame["length"], pa.float32())})
    table = table.replace_schema_metadata({"made by": "hand"})
    path = tmp_path / "data.parquet"
    pq.write_table(table, path, row_group_size=25, compression="zstd")
    names = list(map(str, values[:2] if kind == "bool" else values))
    info = dict(audit.info) | {
        "source": stored.source_of("table", path, 60, label="kind"),
        "classes": names,
        "label_values": values[: len(names)],
        "transition": None,
    }
    by_row = dict(enumerate(codes.tolist()))
    rows = audit.rows.assign(given_label=audit.rows["row"].map(by_row), suggested_label=0)
    folder = stored.write(tmp_path / "other", stored.StoredAudit(info, rows))
    decide(folder, {2: ("choose", 1), 30: ("choose", 0), 59: ("choose", 1)})
    apply(folder, tmp_path / "new.parquet")
    new, old = pq.ParquetFile(tmp_path / "new.parquet"), pq.ParquetFile(path)
    assert new.schema_arrow.equals(old.schema_arrow, check_metadata=True)
    assert [new.metadata.row_group(i).num_rows for i in range(3)] == [25, 25, 10]
    assert new.metadata.row_group(0).column(0).compression == "ZSTD"
    expected = table.column("kind").to_pylist()
    for row, code in {2: 1, 30: 0, 59: 1}.items():
        expected[row] = values[code]
    assert new.read().column("kind").to_pylist() == expected
    assert new.read().column("size").equals(old.read().column("size"))


def test_npz_keeps_the_other_arrays(npz_audit, decide, tmp_path):
    folder, path = npz_audit()
    changes = some_changes(folder)
    decide(folder, changes)
    apply(folder, tmp_path / "new.npz")
    with np.load(path) as old, np.load(tmp_path / "new.npz") as new:
        assert old.files == new.files
        assert new["y"].dtype == np.int16
        expected = old["y"].copy()
        for row, (kind, label) in changes.items():
            expected[row] = label if kind != "skip" else expected[row]
        np.testing.assert_array_equal(new["y"], expected)
        for name in ("x", "extra"):
            np.testing.assert_array_equal(new[name], old[name])


def tree(folder):
    found = {}
    for here, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(here, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def test_folders_are_copied_or_listed(folder_audit, decide, tmp_path):
    folder, top = folder_audit(30)
    (top / "notes.txt").write_text("kept")
    audit = stored.read(folder)
    source = stored.source_of("folder", top, 30)
    folder = stored.write(
        tmp_path / "audit2", stored.StoredAudit(dict(audit.info) | {"source": source}, audit.rows)
    )
    names, before = names_in_order(audit), tree(top)
    changes = some_changes(folder)
    # A name that is taken in the new class's folder.
    target = audit.classes[changes[3][1]]
    taken = top / target / os.path.basename(names[3])
    taken.write_bytes(b"")
    taken.unlink()
    decide(folder, changes)
    done = apply(folder, tmp_path / "new")
    assert tree(top) == before
    log = pd.read_csv(done.log)
    expected = dict(before)
    for old, new in zip(log["id"], log["path"], strict=True):
        expected[new] = expected.pop(old)
    assert tree(tmp_path / "new") == expected
    for row, new in zip(log["row"], log["path"], strict=True):
        assert new.split("/")[0] == audit.classes[changes[row][1]]
    apply(folder, tmp_path / "moves.csv", list_moves=True)
    moves = pd.read_csv(tmp_path / "moves.csv")
    assert moves["from"].tolist() == log["id"].tolist()
    assert moves["to"].tolist() == log["path"].tolist()


def test_a_taken_name_gets_a_number(folder_audit):
    folder, _ = folder_audit(30)
    audit = stored.read(folder)
    ids = [f"{audit.classes[code]}/same.png" for code in audit.rows["given_label"]]
    rows = audit.rows.assign(id=ids)
    clash = formats.Correction.of(stored.StoredAudit(audit.info, rows), {0: 1, 1: 1})
    new = list(formats.moves(clash).values())
    assert len(set(new) | set(ids)) == len(set(new)) + len(set(ids))


def test_split_folders_move_within_their_part(folder_audit):
    folder, _ = folder_audit(12)
    audit = stored.read(folder)
    deeper = stored.StoredAudit(audit.info, audit.rows.assign(id="train/" + audit.rows["id"]))
    given = given_of(folder)
    what = formats.Correction.of(deeper, {0: int((given[0] + 1) % 3)})
    ((old, new),) = formats.moves(what).items()
    assert new == f"train/{audit.classes[(given[0] + 1) % 3]}/{old.split('/')[2]}"


def test_clothing1m_keeps_its_files_and_changes_its_list(tmp_path, decide):
    top = tmp_path / "clothing"
    (top / "annotations").mkdir(parents=True)
    (top / "images").mkdir()
    (top / "annotations" / "noisy_label_kv.txt").write_text(
        "images/a b.jpg 3\r\nimages/c.jpg 1\nimages/d.jpg 0"
    )
    (top / "images" / "c.jpg").write_bytes(b"c")
    info = {
        "audit_id": "a" * 12,
        "source": stored.source_of("folder", top, 2),
        "classes": list("wxyz"),
        "label_values": list("wxyz"),
    }
    rows = pd.DataFrame({"row": [0, 1], "id": ["images/a b.jpg", "images/c.jpg"], "given_label": [3, 1]})
    for name, kind in stored.COLUMNS.items():
        if name not in rows:
            rows[name] = np.zeros(2, kind)
    folder = stored.write(tmp_path / "audit", stored.StoredAudit(info, rows))
    decide(folder, {0: ("choose", 1)})
    apply(folder, tmp_path / "new")
    assert (tmp_path / "new/images/c.jpg").read_bytes() == b"c"
    kept = (tmp_path / "new/annotations/noisy_label_kv.txt").read_bytes()
    assert kept == b"images/a b.jpg 1\r\nimages/c.jpg 1\nimages/d.jpg 0"


def test_what_cannot_be_applied_is_refused_before_anything_is_written(
    table_audit, folder_audit, decide, tmp_path
):
    folder, path = table_audit(40)
    decide(folder, some_changes(folder))
    cases = [
        ({"out": path}, InputError, "never changed"),
        ({"out": tmp_path / "new.parquet"}, InputError, "format of the original"),
        ({"out": tmp_path / "moves.csv", "list_moves": True}, InputError, "folders of images"),
    ]
    for options, error, words in cases:
        with pytest.raises(error, match=words):
            apply(folder, **options)
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    with pytest.raises(InputError, match="never changed"):
        apply(folder, link)
    (tmp_path / "there.csv").write_text("")
    with pytest.raises(InputError, match="exists already"):
        apply(folder, tmp_path / "there.csv")
    text = path.read_text()
    path.write_text(text.replace("row 1\n", "row one\n").replace("row 1,", "row one,"))
    with pytest.raises(InputError, match="changed since"):
        apply(folder, tmp_path / "new.csv")
    assert apply(folder, tmp_path / "new.csv", force=True).changed == 5
    lines = text.splitlines(keepends=True)
    path.write_text("".join([lines[0], *reversed(lines[1:])]))
    with pytest.raises(DamagedFileError, match="were not those decided"):
        apply(folder, tmp_path / "turned.csv", force=True)
    assert not (tmp_path / "turned.csv").exists()
    path.unlink()
    with pytest.raises(MissingDataError, match="any more"):
        apply(folder, tmp_path / "gone.csv")
    assert sorted(p.name for p in tmp_path.glob(".*")) == []


def test_links_out_of_a_folder_are_not_copied(folder_audit, decide, tmp_path):
    folder, top = folder_audit(30)
    decide(folder, some_changes(folder))
    (tmp_path / "secret").write_text("s")
    (top / "link.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="link out of"):
        apply(folder, tmp_path / "new", force=True)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="never changed"):
        apply(folder, top / "inside", force=True)


def test_the_log_lies_beside(tmp_path):
    assert log_path(tmp_path / "a.parquet") == tmp_path / "a.changes.csv"
