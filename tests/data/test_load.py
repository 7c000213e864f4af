"""`load`: what is a name, what a path, what an object."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import noisegate.data as data
from noisegate.data import ArrayReader, ImageReader, LazyInputs, TableReader, load, reader_from_dict
from noisegate.errors import InputError, MissingDataError, UnknownNameError


def test_importing_is_light():
    heavy = ["torch", "pandas", "PIL", "sklearn", "scipy", "pooch", "requests"]
    code = f"import sys, noisegate.data; print([m for m in {heavy!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_loaded_dataset_is_returned_as_it_is():
    loaded = load("moons", n=10)
    assert load(loaded) is loaded
    with pytest.raises(InputError, match="takes no options"):
        load(loaded, n=3)


def test_a_pair_of_arrays():
    loaded = load((np.eye(4), np.array(["b", "a", "b", "a"])))
    assert loaded.classes == ("a", "b")
    assert loaded.train.y.tolist() == [1, 0, 1, 0]
    assert loaded.info["label_values"] == ["a", "b"]


def test_a_frame_and_a_torch_dataset():
    frame = pd.DataFrame({"u": [1, 2, 3, 4], "y": ["p", "q", "p", "q"]})
    assert load(frame, label="y").train.y.tolist() == [0, 1, 0, 1]
    pairs = torch.utils.data.TensorDataset(torch.eye(4), torch.tensor([0, 1, 1, 0]))
    assert load(pairs).train.y.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("value", [3, None, [1, 2], np.eye(2), {"x": 1}, (1, 2, 3)])
def test_other_objects_are_refused(value):
    with pytest.raises(InputError, match="expected the name of a dataset"):
        load(value)


def test_paths_are_told_from_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingDataError, match=r"there is no file or folder missing\.csv"):
        load("missing.csv", label="y")
    with pytest.raises(MissingDataError):
        load("./digits")
    with pytest.raises(UnknownNameError):
        load("nothing-like-this")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="not a format that noisegate reads"):
        load("notes.txt")
    (tmp_path / "digits").mkdir()
    assert load("digits").n_classes == 10  # names come first


@pytest.mark.parametrize("suffix", ["csv", "CSV", "csv.gz", "tsv", "parquet"])
def test_tables_are_dispatched_on_their_suffix(tmp_path, suffix):
    frame = pd.DataFrame({"u": [1.5, 2.5, 3.5], "y": ["p", "q", "p"]})
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    loaded = load(str(path), label="y")
    assert loaded.name == "rows"
    np.testing.assert_array_equal(loaded.train.x, [[1.5], [2.5], [3.5]])
    with pytest.raises(InputError, match="a table has no option 'lable'"):
        load(path, lable="y")


def test_folders_are_dispatched(tmp_path, image_folder):
    image_folder(tmp_path / "pets", {"cat": 2, "dog": 3})
    loaded = load(tmp_path / "pets")
    assert (loaded.name, loaded.classes, len(loaded.train)) == ("pets", ("cat", "dog"), 5)
    with pytest.raises(InputError, match="an image folder has no option 'label'"):
        load(tmp_path / "pets", label="y")


@pytest.mark.parametrize(
    "reader",
    [
        ArrayReader((2,)),
        ArrayReader((3, 8, 8)),
        ImageReader(32, 1),
        TableReader.fit(
            pd.DataFrame(
                {
                    "a": [1.0, None, 2.0],
                    "b": ["x", None, "y"],
                    "t": pd.to_datetime(["2020-01-01", "2021-01-01", None]),
                    "same": 1,
                }
            )
        ),
    ],
)
def test_readers_survive_json(reader):
    assert reader_from_dict(json.loads(json.dumps(reader.to_dict(), allow_nan=False))) == reader


@pytest.mark.parametrize(
    "content", [{}, {"kind": "pickle"}, {"kind": "table"}, {"kind": "images", "size": "x"}]
)
def test_damaged_reader_descriptions_are_refused(content):
    with pytest.raises(InputError):
        reader_from_dict(content)


def test_names_that_others_import():
    for name in data.__all__:
        assert hasattr(data, name), name
    assert isinstance(data.ImageFiles(["a.png"], 8), LazyInputs)
