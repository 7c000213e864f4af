import os
import stat

import pytest

from noisegate._io.files import atomic, check_writable, read_json, write_json, write_text
from noisegate.errors import DamagedFileError, InputError, MissingDataError


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "sub" / "file"
    write_text(path, "old")
    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error), atomic(path) as file:
            file.write(b"half")
            raise error
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file"]


def test_files_are_readable_as_the_umask_says(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_json_round_trip_and_its_errors(tmp_path):
    path = tmp_path / "f.json"
    write_json(path, {"a": [1, 2.5, None]})
    assert read_json(path) == {"a": [1, 2.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": [1, 2.5, None]}
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(DamagedFileError, match=r"f\.json is not readable JSON"):
        read_json(path)
    with pytest.raises(MissingDataError, match="there is no file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputError, match="found a folder"):
        read_json(tmp_path)


def test_a_place_that_cannot_be_written_to_is_refused_and_nothing_is_left(tmp_path):
    check_writable(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written to"):
        check_writable(tmp_path / "file" / "model")
    assert os.listdir(tmp_path) == ["file"]
