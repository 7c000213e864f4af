import math
import os
import pickle

import pytest
import torch

from noisegate._io.trees import load_tree, save_tree
from noisegate.errors import BusyError, DamagedFileError, InputError, MissingDataError, OtherRunError
from noisegate.training.checkpoint import RunFolder


def test_a_tree_comes_back_as_it_was(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    tree = {
        "weights": {"a": shared, "b": shared, "view": shared.T, "scalar": torch.tensor(3)},
        "list": [1, None, True, "x", [torch.zeros(0)]],
        "tuple": (0.1, math.inf),
        "": {},
    }
    save_tree(tmp_path / "t.safetensors", tree)
    back = load_tree(tmp_path / "t.safetensors")
    assert back["list"][:4] == tree["list"][:4]
    assert back["tuple"] == tree["tuple"]
    assert back[""] == {}
    for name, value in tree["weights"].items():
        assert torch.equal(back["weights"][name], value)
        assert back["weights"][name].dtype == value.dtype


def test_what_json_cannot_hold_is_not_written(tmp_path):
    with pytest.raises(TypeError):
        save_tree(tmp_path / "t.safetensors", {"function": print})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\x00" * 40, b"{}", pickle.dumps({"a": 1})])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "t.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"t\.safetensors"):
        load_tree(path)


def test_a_truncated_file_is_named(tmp_path):
    path = tmp_path / "t.safetensors"
    save_tree(path, {"a": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamagedFileError, match=r"t\.safetensors"):
        load_tree(path)


@pytest.mark.parametrize("name", [b"checked", b"tensor", b"dict", b"value"])
def test_a_damaged_name_within_the_tree_does_not_pass_for_plain_data(tmp_path, name):
    """A damaged "checked" made everything the value of an unknown kind, and nothing was compared."""
    path = tmp_path / "t.safetensors"
    save_tree(path, {"w": torch.ones(2), "epoch": 3})
    content = path.read_bytes()
    assert name in content
    path.write_bytes(content.replace(name, b" " + name[1:], 1))
    with pytest.raises(DamagedFileError, match="it is damaged"):
        load_tree(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"no file .*t\.safetensors"):
        load_tree(tmp_path / "t.safetensors")


def test_a_folder_of_another_run_is_refused_with_what_differs(tmp_path):
    RunFolder(tmp_path / "run", {"seed": 1, "method": "ce"}).close()
    RunFolder(tmp_path / "run", {"seed": 1, "method": "ce"}).close()
    with pytest.raises(InputError, match="holds another run \\(it differs in seed\\)"):
        RunFolder(tmp_path / "run", {"seed": 2, "method": "ce"})
    # The refusal does not leave the folder locked.
    RunFolder(tmp_path / "run", {"seed": 1, "method": "ce"}).close()


def test_a_second_writer_is_refused_at_once(tmp_path):
    first = RunFolder(tmp_path, {})
    with pytest.raises(BusyError, match="another process is training in"):
        RunFolder(tmp_path, {})
    first.close()
    RunFolder(tmp_path, {}).close()


def test_a_file_where_the_folder_should_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a folder"):
        RunFolder(tmp_path / "file", {})


def test_the_state_of_another_phase_is_not_taken_for_this_one(tmp_path):
    folder = RunFolder(tmp_path, {})
    folder.save_current(1, {"a": torch.ones(2)})
    assert folder.current(0) is None
    assert torch.equal(folder.current(1)["a"], torch.ones(2))
    folder.finish_phase(1, {"module": 2, "history": []})
    assert folder.current(1) is None
    assert folder.finished_phase(1) == {"module": 2, "history": []}
    assert folder.finished_phase(0) is None
    folder.close()


def test_no_temporary_files_stay(tmp_path):
    for k in range(3):
        save_tree(tmp_path / "t.safetensors", {"k": k})
    assert os.listdir(tmp_path) == ["t.safetensors"]


def test_a_damaged_state_is_trained_once_more(tmp_path, caplog):
    folder = RunFolder(tmp_path, {})
    folder.save_current(0, {"a": torch.ones(2)})
    folder.finish_phase(1, {"b": torch.ones(2)})
    folder.save_current(0, {"a": torch.ones(2)})
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-3])
    assert folder.current(0) is None
    assert folder.finished_phase(1) is None
    assert caplog.text.count("trained once more") == 2
    folder.close()


def test_a_folder_whose_description_is_damaged_is_refused(tmp_path):
    RunFolder(tmp_path, {"seed": 1}).close()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(OtherRunError, match="choose another folder"):
        RunFolder(tmp_path, {"seed": 1})


def test_what_a_killed_writer_left_goes(tmp_path):
    RunFolder(tmp_path, {"seed": 1}).close()
    (tmp_path / ".current.safetensors.x1.part").write_bytes(b"half")
    RunFolder(tmp_path, {"seed": 1}).close()
    assert sorted(os.listdir(tmp_path)) == [".lock", "run.json"]


def test_a_changed_bit_of_a_checkpoint_is_noticed(tmp_path, caplog):
    folder = RunFolder(tmp_path, {})
    values = torch.arange(100.0)
    folder.finish_phase(0, {"module": {"w": values}, "history": [[]]})
    path = tmp_path / "phase-0.safetensors"
    sound = path.read_bytes()
    changed = bytearray(sound)
    changed[sound.index(values.numpy().tobytes()) + 7] ^= 1
    other_type = sound.replace(b'"F32"', b'"I32"')
    for damage in (bytes(changed), other_type):
        path.write_bytes(damage)
        assert folder.finished_phase(0) is None
    assert caplog.text.count("not those that were written") == 2
    path.write_bytes(sound)
    assert torch.equal(folder.finished_phase(0)["module"]["w"], values)
    save_tree(path, [1, 2])  # a sound file of something else
    assert folder.finished_phase(0) is None
    folder.close()


@pytest.mark.parametrize("content", ["[]", "{", '{"phase": 0}', '{"phase": "0", "epoch": 1, "step": 2}'])
def test_a_damaged_record_of_divergence_is_none(tmp_path, content):
    folder = RunFolder(tmp_path, {})
    folder.record_divergence(phase=0, epoch=1, step=2)
    assert folder.divergence == {"phase": 0, "epoch": 1, "step": 2}
    (tmp_path / "diverged.json").write_text(content)
    assert folder.divergence is None
    folder.close()


@pytest.mark.parametrize("content", ["[]", "[1]", "3", "null"])
def test_a_description_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(OtherRunError, match="choose another folder"):
        RunFolder(tmp_path, {"seed": 1})
