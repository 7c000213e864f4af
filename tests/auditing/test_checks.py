"""An audit folder with anything else in it than an audit writes is damage, and no error of another kind."""

import gzip
import json
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate as ng
from noisegate.auditing import stored
from noisegate.auditing.apply import apply
from noisegate.auditing.content import open_content
from noisegate.errors import DamagedFileError, NoisegateError


def use(folder):
    """Everything that reads what is stored."""
    report = ng.AuditReport.load(folder)
    assert report.issues is not None
    assert report.noise_rate is not None
    for row in range(3):
        report.why(row)
    report.to_dict()
    report.to_html(folder.parent / "report.html")
    return report.summary(), report.confused, report.curve, report.duplicates, report.transition


@pytest.mark.parametrize("value", [None, 3, "x", [[1]], {"a": "b"}])
def test_any_entry_of_the_description_may_be_anything(table_audit, value):
    folder, _ = table_audit()
    use(folder)
    sound = json.loads((folder / "audit.json").read_text())
    refused = []
    for name in sound:
        (folder / "audit.json").write_text(json.dumps(sound | {name: value}))
        try:
            use(folder)
        except NoisegateError as error:
            refused.append(str(error))
    assert len(refused) >= 4
    assert max(map(len, refused)) < 300 + len(str(folder))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": ["bird", "cat", "cat"]}, "same name"),
        ({"label_values": [1, 2]}, "should have 3 entries"),
        ({"confused": [{"true": 0, "given": 3, "count": 1.0}]}, "do not exist"),
        ({"duplicates": [{"rows": [10**9], "labels": [0]}]}, "do not exist"),
        ({"curve": {"looked": [1, 2], "found": [1.0]}}, "differ in length"),
        ({"curve": {"looked": [1, 2], "found": [1.0, 2.0], "lov": 7}}, "differ in length"),
        ({"transition": {"value": [[1.0]], "low": [[1.0]], "high": [[1.0]]}}, "3 times 3"),
        ({"transition": {key: [[1.0], [0.5, 0.5], []] for key in ("value", "low", "high")}}, "3 times 3"),
        ({"noise_rate": {"value": float("nan")}}, "value holds nan"),
        ({"classes": ["\x1b[31m", 7, "x"]}, "classes holds 7"),
    ],
)
def test_what_does_not_fit_together_is_named(table_audit, changes, words):
    folder, _ = table_audit()
    info = json.loads((folder / "audit.json").read_text())
    (folder / "audit.json").write_text(json.dumps(info | changes))
    with pytest.raises(DamagedFileError, match=words):
        use(folder)


@pytest.mark.parametrize("column", ["row", "given_label", "suggested_label", "quality", "p_wrong", "is_sure"])
@pytest.mark.parametrize("value", [None, "x", float("nan"), -1, 10**12, 1e300])
def test_any_column_of_the_rows_may_be_anything(table_audit, column, value):
    folder, _ = table_audit()
    rows = pd.read_parquet(folder / "rows.parquet").assign(**{column: value})
    rows.to_parquet(folder / "rows.parquet", index=False)
    with pytest.raises(DamagedFileError):
        use(folder)


@pytest.mark.parametrize("name", ["rows.parquet", "probs.npy", "neighbours.npz"])
def test_pipes_devices_and_bytes_of_another_kind(table_audit, name):
    folder, _ = table_audit()
    path = folder / name
    for harm in (
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.mkdir(),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(b"\x93NUMPY\x01\x00" + b"garbage" * 50),
    ):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
        harm()
        with pytest.raises(NoisegateError, match=name):
            use(folder)


@pytest.mark.parametrize(
    "probs",
    [np.ones((3, 3)), np.ones(40), np.full((40, 3), "a"), np.ones((40, 3), complex), np.ones((40, 3), int)],
)
def test_probabilities_of_other_data_are_refused(table_audit, probs):
    folder, _ = table_audit(40)
    np.save(folder / "probs.npy", probs)
    with pytest.raises(DamagedFileError, match="should hold fractions"):
        use(folder)


def test_an_array_longer_than_its_file_takes_no_memory(table_audit):
    folder, _ = table_audit(40)
    with open(folder / "probs.npy", "wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DamagedFileError, match=r"probs\.npy"):
        use(folder)


@pytest.mark.parametrize("rows", [np.full((40, 2), 10**9), np.full((40, 2), -5), np.zeros((39, 2), int)])
def test_neighbours_that_do_not_exist_are_refused(table_audit, rows):
    folder, _ = table_audit(40)
    np.savez(folder / "neighbours.npz", rows=np.arange(40), neighbours=rows, similarity=np.ones((40, 2)))
    with pytest.raises(DamagedFileError, match=r"neighbours\.npz: neighbours"):
        use(folder)


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("harm", [_pipe, _device])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_audited_data_that_became_a_pipe_or_device_are_not_waited_for(table_audit, tmp_path, harm, suffix):
    folder, data = table_audit()
    data = data.rename(data.with_name(f"data{suffix}"))
    info = json.loads((folder / "audit.json").read_text())
    info["source"]["path"] = str(data)
    (folder / "audit.json").write_text(json.dumps(info))
    harm(data)
    view = open_content(stored.read(folder)).view(0)
    assert "pipe, socket or device" in view.problem
    with pytest.raises(NoisegateError, match="pipe, socket or device"):
        apply(folder, tmp_path / f"out{suffix}")


def test_audited_data_that_became_bombs_are_not_unpacked(table_audit, tmp_path, monkeypatch):
    monkeypatch.setenv("NOISEGATE_MAX_FILE_GIB", "0.01")
    folder, _ = table_audit()
    info = json.loads((folder / "audit.json").read_text())
    with gzip.open(tmp_path / "data.csv.gz", "wb") as file:
        file.write(b"length,remark,kind\n" + b"1,a,cat\n" * 2**22)
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["a" * 2**16]))
    pq.write_table(pa.table({"kind": texts}), tmp_path / "data.parquet")
    for name in ("data.csv.gz", "data.parquet"):
        info["source"]["path"] = str(tmp_path / name)
        (folder / "audit.json").write_text(json.dumps(info))
        assert "would need" in open_content(stored.read(folder)).view(0).problem
        with pytest.raises(NoisegateError, match="would need"):
            apply(folder, tmp_path / f"out-{name}", force=True)
    assert not list(tmp_path.glob("out-*"))


@pytest.mark.parametrize("path", ["/etc", "/nowhere", "\0", "x" * 5000, ""])
@pytest.mark.parametrize("kind", ["table", "npz", "folder", "masks", "named", "memory", "\x1b"])
def test_a_source_may_be_anything(table_audit, kind, path):
    folder, _ = table_audit(20)
    info = json.loads((folder / "audit.json").read_text())
    info["source"] |= {"kind": kind, "path": path, "options": {"n": [1]}}
    (folder / "audit.json").write_text(json.dumps(info))
    assert open_content(stored.read(folder)).view(0).problem
