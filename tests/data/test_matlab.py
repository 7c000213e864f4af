"""MATLAB files, with scipy's writer and reader as the oracle."""

import struct

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from noisegate.data.matlab import read_arrays
from noisegate.errors import DamagedFileError, InputError, MissingDataError

ARRAYS = {
    "bytes": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "doubles": np.linspace(-1, 1, 6).reshape(3, 2),
    "small": np.array([[1.0, 2.0]]),
    "signed": np.array([[-3, 4]], np.int16),
    "long": np.arange(300, dtype=np.int64)[None],
    "empty": np.zeros((0, 3)),
}


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_are_those_that_scipy_reads(tmp_path, compressed):
    path = tmp_path / "a.mat"
    savemat(path, ARRAYS | {"text": "abc", "record": {"x": 1}}, do_compression=compressed)
    found, expected = read_arrays(path, [*ARRAYS, "text"]), loadmat(path)
    assert set(found) == set(ARRAYS)  # a text is no array of numbers
    for name in ARRAYS:
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == ARRAYS[name].dtype
    assert read_arrays(path, ["none"]) == {}


def test_files_of_the_other_byte_order(tmp_path):
    def element(kind, body):
        return struct.pack(">II", kind, len(body)) + body + b"\0" * (-len(body) % 8)

    parts = (
        element(6, struct.pack(">II", 4 << 0 | 10, 0))
        + element(5, struct.pack(">ii", 1, 3))
        + element(1, b"v")
        + element(3, struct.pack(">hhh", 1, -2, 300))
    )
    head = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI"
    (tmp_path / "big.mat").write_bytes(head + element(14, parts))
    assert read_arrays(tmp_path / "big.mat", ["v"])["v"].tolist() == [[1, -2, 300]]
    np.testing.assert_array_equal(loadmat(tmp_path / "big.mat")["v"], [[1, -2, 300]])


@pytest.mark.parametrize("compressed", [True, False])
def test_every_damage_is_one_error(tmp_path, compressed):
    """Cut files, and files with a changed byte: equal arrays, or DamagedFileError, and nothing else."""
    path = tmp_path / "a.mat"
    savemat(path, {"X": ARRAYS["bytes"], "y": ARRAYS["small"]}, do_compression=compressed)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for trial in range(600):
        damaged = bytearray(whole)
        if trial % 3 == 0:
            damaged = damaged[: rng.integers(len(whole))]
        for _ in range(1 + trial % 4):
            if damaged:
                damaged[rng.integers(len(damaged))] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            found = read_arrays(path, ("X", "y"))
        except DamagedFileError:
            refused += 1
        else:
            assert all(array.size <= len(whole) * 1032 for array in found.values())
    assert refused > 200


def test_a_small_file_cannot_claim_gigabytes(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"X": np.zeros((200, 200))}, do_compression=False)
    content = bytearray(path.read_bytes())
    place = content.index(struct.pack("<ii", 200, 200))
    content[place : place + 8] = struct.pack("<ii", 2**30, 2**30)
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="values for a shape"):
        read_arrays(path, ["X"])


def test_a_limit_can_be_set(tmp_path, monkeypatch):
    savemat(tmp_path / "a.mat", {"X": np.zeros((2000, 2000))}, do_compression=True)
    monkeypatch.setenv("NOISEGATE_MAX_FILE_GIB", "0.01")
    with pytest.raises(InputError, match="set NOISEGATE_MAX_FILE_GIB to a larger number"):
        read_arrays(tmp_path / "a.mat", ["X"])


def test_files_that_are_not_such_files(tmp_path):
    with pytest.raises(MissingDataError):
        read_arrays(tmp_path / "none.mat", ["X"])
    with pytest.raises(InputError, match=r"expected a \.mat file at .*, found a folder"):
        read_arrays(tmp_path, ["X"])
    (tmp_path / "h.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512))
    with pytest.raises(DamagedFileError, match="save it with -v7"):
        read_arrays(tmp_path / "h.mat", ["X"])
