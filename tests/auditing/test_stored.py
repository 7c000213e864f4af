"""What is written is what is read; a folder that cannot be an audit says why."""

import json

import numpy as np
import pytest

from noisegate.auditing import stored
from noisegate.errors import DamagedFileError, InputError, MissingDataError


def test_round_trip(table_audit):
    folder, path = table_audit(50)
    audit = stored.read(folder)
    assert len(audit) == 50
    assert audit.classes == ["bird", "cat", "dog"]
    assert audit.source["path"] == str(path)
    assert (np.diff(audit.rows["quality"]) >= 0).all()
    assert dict(audit.rows.dtypes.astype(str)) == stored.COLUMNS
    quality = audit.rows.sort_values("row")["quality"].to_numpy()
    order = np.argsort(audit.rows["row"].to_numpy())
    given = audit.rows["given_label"].to_numpy()[order]
    np.testing.assert_array_equal(audit.probs[np.arange(50), given], quality)


def test_written_twice_is_the_same(table_audit, tmp_path):
    folder, _ = table_audit()
    again = stored.write(tmp_path / "again", stored.read(folder))
    assert (again / "audit.json").read_text() == (folder / "audit.json").read_text()
    assert (again / "probs.npy").read_bytes() == (folder / "probs.npy").read_bytes()


def test_large_matrices_leave_the_json(table_audit, tmp_path):
    folder, _ = table_audit()
    audit = stored.read(folder)
    k = stored.MOST_CLASSES_IN_JSON + 1
    matrix = np.eye(k)
    info = dict(audit.info) | {
        "classes": [f"c{i}" for i in range(k)],
        "label_values": list(range(k)),
        "transition": {"value": matrix, "low": matrix, "high": matrix},
    }
    wide = stored.StoredAudit(info, audit.rows)
    folder = stored.write(tmp_path / "wide", wide)
    assert json.loads((folder / "audit.json").read_text())["transition"] is None
    np.testing.assert_array_equal(stored.read(folder).info["transition"]["value"], matrix)
    assert stored.read(folder).probs is None


@pytest.mark.parametrize(
    ("harm", "error", "words"),
    [
        (lambda f: (f / "audit.json").unlink(), MissingDataError, "no audit"),
        (lambda f: (f / "rows.parquet").unlink(), MissingDataError, "rows.parquet"),
        (lambda f: (f / "rows.parquet").write_bytes(b"PAR1"), DamagedFileError, "rows.parquet is cut off"),
        (lambda f: (f / "audit.json").write_text("{}"), DamagedFileError, "describe an audit"),
        (
            lambda f: (f / "audit.json").write_text('{"kind": "noisegate-audit", "format": 9}'),
            DamagedFileError,
            "format 9",
        ),
        (lambda f: (f / "probs.npy").write_bytes(b"123"), DamagedFileError, "probs.npy"),
    ],
)
def test_damage_is_named(table_audit, harm, error, words):
    folder, _ = table_audit()
    harm(folder)
    with pytest.raises(error, match=words):
        stored.read(folder)


def test_rows_must_be_complete(table_audit, tmp_path):
    folder, _ = table_audit()
    audit = stored.read(folder)
    for broken in (
        audit.rows.drop(columns="quality"),
        audit.rows.iloc[1:],
        audit.rows.assign(given_label=7),
    ):
        with pytest.raises(DamagedFileError):
            stored.write(tmp_path / "broken", stored.StoredAudit(audit.info, broken))


def test_fingerprint_follows_the_content(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n")
    first = stored.fingerprint(file)
    file.write_text("x,y\n1,3\n")
    assert stored.fingerprint(file) != first
    before = stored.fingerprint(tmp_path)
    (tmp_path / "b").write_text("")
    assert stored.fingerprint(tmp_path) != before
    with pytest.raises(MissingDataError):
        stored.fingerprint(tmp_path / "none")
    with pytest.raises(InputError, match="one of"):
        stored.source_of("tables", None, 3)
