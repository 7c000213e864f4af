import os
import pickle
import resource
import time
import zipfile

import numpy as np
import pytest
import torch

from noisegate.data.pickles import read_pickle, read_torch_file
from noisegate.errors import DamagedFileError, InputError, MissingDataError


class Calls:
    """Pickles to a call of any function."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def write(path, value, protocol=2):
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(5, dtype=">i4"),
        np.array(["ab", "c"]),
        np.array([True, False]),
        np.zeros((0, 3), np.int64),
        np.float32(2.5) * np.ones((2, 1, 2), np.float32),
    ],
)
def test_arrays_come_out_as_they_went_in(tmp_path, array, protocol):
    read = read_pickle(write(tmp_path / "p", {b"a": array, "text": "x", "list": [1, 2]}, protocol))
    np.testing.assert_array_equal(read["a"], array)
    assert read["a"].dtype == array.dtype.newbyteorder("=")
    assert (read["text"], read["list"]) == ("x", [1, 2])
    read["a"][...] = read["a"]  # writable: it does not share the file's bytes


@pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
def test_arrays_of_old_and_new_numpy(tmp_path, module):
    content = pickle.dumps({"a": np.arange(3)}, protocol=2)
    for name in (b"numpy._core", b"numpy.core"):
        content = content.replace(b"c" + name + b".multiarray", b"c" + module.encode() + b".multiarray")
    (tmp_path / "p").write_bytes(content)
    assert read_pickle(tmp_path / "p")["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (os.system, ("touch {}",)),
        (eval, ("open('{}', 'w')",)),
        (exec, ("open('{}', 'w')",)),
        (open, ("{}", "w")),
        (os.mkdir, ("{}",)),
        (np.savetxt, ("{}", [1])),
        (np.load, ("{}",)),
        (getattr, ("text", "upper")),
        (np.memmap, ("{}", "u1", "w+", 0, (4,))),
        (np.ndarray, ((2,),)),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_runs_nothing(tmp_path, function, args, protocol):
    victim = tmp_path / "victim"
    args = tuple(a.format(victim) if isinstance(a, str) else a for a in args)
    path = write(tmp_path / "bad", {b"data": Calls(function, *args)}, protocol)
    for read in (read_pickle, read_torch_file):
        with pytest.raises(DamagedFileError, match="bad is cut off or is not what it should be") as error:
            read(path)
        assert not victim.exists()
        assert "\n" not in str(error.value)


def test_the_same_pickle_would_have_run(tmp_path):
    """The oracle of the test above: plain pickle does run it."""
    path = write(tmp_path / "bad", {b"data": Calls(os.mkdir, str(tmp_path / "victim"))})
    pickle.loads(path.read_bytes())
    assert (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02cnumpy\ndtype\n(X\x01\x00\x00\x00Otb.",  # a state for the name itself
        b"\x80\x02cnumpy\ndtype\n}X\x09\x00\x00\x00_functionNsb.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"\x80\x02cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.",
        b"\x80\x02Pname\n.",  # persistent id, as torch's tensors have
        b"\x80\x02}X\x01\x00\x00\x00acnumpy\ndtype\ns.",  # a name as a value
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
        b"\x80\x02K\x01.",
        b"",
        b"\x80\x02",
        b"garbage",
    ],
)
def test_strange_programs_are_refused(tmp_path, program):
    (tmp_path / "p").write_bytes(program)
    with pytest.raises(DamagedFileError):
        read_pickle(tmp_path / "p")


@pytest.mark.parametrize(
    "value",
    [
        np.array([{}, []], dtype=object),
        np.zeros(2, [("a", "i4"), ("b", "O")]),
        np.zeros(2, [("a", "i4")]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.float64(3.5),
        {"deep": 1},
        [[1]],
        {1, 2},
        3 + 4j,
    ],
)
def test_anything_but_plain_arrays_is_refused(tmp_path, value):
    with pytest.raises(DamagedFileError):
        read_pickle(write(tmp_path / "p", {"a": value}))


def test_every_truncation_is_an_error(tmp_path):
    whole = pickle.dumps({b"data": np.arange(40), b"labels": list(range(9))}, protocol=2)
    for length in range(0, len(whole) - 1, 7):
        (tmp_path / "p").write_bytes(whole[:length])
        with pytest.raises(DamagedFileError):
            read_pickle(tmp_path / "p")


def test_an_array_larger_than_its_bytes_is_refused(tmp_path):
    content = pickle.dumps({"a": np.zeros(3, np.uint8)}, protocol=2)
    (tmp_path / "p").write_bytes(content.replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"))
    with pytest.raises(DamagedFileError, match="reshape"):
        read_pickle(tmp_path / "p")


@pytest.mark.parametrize("new_format", [True, False])
def test_torch_files_of_both_formats(tmp_path, new_format):
    labels = {"clean_label": np.arange(10), "noisy_label": np.arange(10)[::-1].copy()}
    torch.save(labels, tmp_path / "h.pt", _use_new_zipfile_serialization=new_format)
    read = read_torch_file(tmp_path / "h.pt")
    assert list(read) == ["clean_label", "noisy_label"]
    np.testing.assert_array_equal(read["noisy_label"], labels["noisy_label"])
    (tmp_path / "cut.pt").write_bytes((tmp_path / "h.pt").read_bytes()[:-200])
    with pytest.raises(DamagedFileError):
        read_torch_file(tmp_path / "cut.pt")


@pytest.mark.parametrize("new_format", [True, False])
def test_tensors_and_code_in_torch_files_are_refused(tmp_path, new_format):
    victim = tmp_path / "victim"
    for value in (torch.ones(2), Calls(os.mkdir, str(victim))):
        torch.save({"a": value}, tmp_path / "t.pt", _use_new_zipfile_serialization=new_format)
        with pytest.raises(DamagedFileError):
            read_torch_file(tmp_path / "t.pt")
    assert not victim.exists()


def test_a_zip_without_data_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "z.pt", "w") as archive:
        archive.writestr("other", "x")
    with pytest.raises(DamagedFileError, match=r"no data\.pkl"):
        read_torch_file(tmp_path / "z.pt")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(MissingDataError):
        read_pickle(tmp_path / "none")
    with pytest.raises(InputError, match="found a folder"):
        read_pickle(tmp_path)


def test_bytes_cannot_be_asked_for_by_size(tmp_path):
    (tmp_path / "p").write_bytes(b"\x80\x02}U\x01ac__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85Rs.")
    with pytest.raises(DamagedFileError, match="positional argument"):
        read_pickle(tmp_path / "p")


def nested(depth, opening=b"]", closing=b"a"):
    return b"\x80\x02" + opening * depth + closing * (depth - 1) + b"."


#: Programs of a few bytes or kilobytes that crash Python's own machine, or keep it busy for hours.
HOSTILE = {
    "lists in lists": nested(200_000),
    "tuples in tuples": b"\x80\x02)" + b"\x85" * 200_000 + b".",
    "a key of doubling tuples": b"\x80\x02})q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s.",
    "a shape of doubling tuples": b"\x80\x02cnumpy.core.numeric\n_frombuffer\n"
    + b"(C\x01acnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R)q\x00"
    + b"h\x00h\x00\x86q\x00" * 60
    + b"X\x01\x00\x00\x00CtR.",
    "a frame of many gigabytes": b"\x80\x04\x95\x00\x00\x00\x00\x01\x00\x00\x00.",
    "bytes of many gigabytes": b"\x80\x04\x8e\x00\x00\x00\x00\x01\x00\x00\x00a.",
    "a far place of the memo": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "one text encoded many times": b"\x80\x02c_codecs\nencode\nq\x00X\x00\x00\x10\x00"
    + b"a" * 2**20
    + b"\x85q\x01"
    + b"h\x00h\x01R" * 10_000
    + b".",
    "a long type": b"\x80\x02cnumpy\ndtype\nX\x00\x00\x01\x00" + b"i4," * 21845 + b"i\x85R.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_small_files_take_neither_time_nor_memory(tmp_path, name):
    (tmp_path / "p").write_bytes(HOSTILE[name])
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedFileError) as error:
        read_pickle(tmp_path / "p")
    assert time.process_time() - started < 30  # for ever, without bounds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes
    assert len(str(error.value)) < 300 + len(str(tmp_path))


def test_what_a_file_says_cannot_move_the_cursor(tmp_path):
    (tmp_path / "p").write_bytes(b"\x80\x02c\x1b[2Jos" + b"x" * 5000 + b"\nsystem\n)R.")
    with pytest.raises(DamagedFileError) as error:
        read_pickle(tmp_path / "p")
    assert "\x1b" not in str(error.value)
    assert r"\x1b[2Jos" in str(error.value)
    assert len(str(error.value)) < 300 + len(str(tmp_path))


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="found a pipe"):
        read_pickle(tmp_path / "pipe")


def test_a_compressed_torch_file_cannot_grow_without_bound(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + b"N0" * 10_000_000)
    with pytest.raises(DamagedFileError, match="claims 20,000,002 bytes"):
        read_torch_file(tmp_path / "bomb.pt")
