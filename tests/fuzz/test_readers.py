"""Damaged files of every format: noisegate's own errors, and nothing else.

`make test` tries a few damages of each format, `make fuzz` 10,000 (FUZZ_CASES). No reader may crash,
raise an error that is not noisegate's, take more than five seconds, or more than two gigabytes of
memory.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.io import savemat

import noisegate as ng
from noisegate._io.models import with_checksum
from noisegate.data.arrays import read_array
from noisegate.data.decoding import decode
from noisegate.data.matlab import read_arrays
from noisegate.data.named.idx import read_idx
from noisegate.data.pickles import read_pickle, read_torch_file
from noisegate.errors import NoisegateError
from noisegate.noise.labels import load_labels, save_labels


@dataclass
class Format:
    """A format: a sound file, how it is read, and how damaged content is packed again."""

    name: str
    sound: Callable[[Path], bytes]
    read: Callable[[Path], object]
    pack: Callable[[bytes], bytes] = bytes


def _pickled(folder: Path) -> bytes:
    rows = np.arange(60, dtype=np.uint8).reshape(5, 12)
    return pickle.dumps({b"data": rows, b"labels": [0, 1, 2, 1, 0], b"names": [b"a", b"b"]}, protocol=2)


def _torch_file(folder: Path) -> bytes:
    torch.save({"clean_label": np.arange(6), "noisy_label": np.arange(6)}, folder / "sound.pt")
    return (folder / "sound.pt").read_bytes()


def _matlab(compressed: bool) -> Callable[[Path], bytes]:
    def sound(folder: Path) -> bytes:
        x = np.arange(4 * 4 * 3 * 2, dtype=np.uint8).reshape(4, 4, 3, 2)
        savemat(folder / "sound.mat", {"X": x, "y": np.array([[1.0], [2.0]])}, do_compression=compressed)
        return (folder / "sound.mat").read_bytes()

    return sound


def _one_matlab_array(folder: Path) -> bytes:
    savemat(folder / "sound.mat", {"X": np.arange(24.0).reshape(4, 6)})
    return (folder / "sound.mat").read_bytes()


def _matlab_packed(content: bytes) -> bytes:
    """The one element of an uncompressed file, compressed: damage then lies below zlib's checksum."""
    body = zlib.compress(content[128:])
    return (
        content[:128].ljust(128, b"\0") + (15).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body
    )


def _idx(folder: Path) -> bytes:
    return b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 2, 2)) + bytes(range(12))


def _arrays() -> dict[str, np.ndarray]:
    return {"x": np.linspace(0, 1, 24).reshape(12, 2), "y": np.arange(12) % 3}


def _npz(folder: Path) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **_arrays())
    return file.getvalue()


def _npy(folder: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, _arrays()["y"])
    return file.getvalue()


def _npy_of_rows(folder: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, _arrays()["x"])
    return file.getvalue()


def _npz_of(member: bytes) -> bytes:
    """An .npz file whose labels are a damaged array under a sound checksum."""
    file = io.BytesIO()
    np.savez(file, x=_arrays()["x"])
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("y.npy", member)
    return file.getvalue()


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=30).round(3),
            "colour": rng.choice(["red", "green", 'blue, "dark"'], 30),
            "day": pd.date_range("2024-01-01", periods=30).astype(str),
            "label": rng.choice(["yes", "no"], 30),
        }
    )


def _csv(folder: Path) -> bytes:
    return _frame().to_csv(index=False).encode()


def _parquet(folder: Path) -> bytes:
    _frame().to_parquet(folder / "sound.parquet")
    return (folder / "sound.parquet").read_bytes()


def _labels(folder: Path) -> bytes:
    save_labels(folder / "sound.txt", np.arange(9) % 3, clean=np.zeros(9, np.int64))
    return (folder / "sound.txt").read_bytes()


def _picture(kind: str) -> Callable[[Path], bytes]:
    def sound(folder: Path) -> bytes:
        file = io.BytesIO()
        pixels = np.random.default_rng(0).integers(0, 256, (16, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, kind)
        return file.getvalue()

    return sound


FORMATS = [
    Format("pickle", _pickled, read_pickle),
    Format("torch.pt", _torch_file, read_torch_file),
    Format("plain.mat", _matlab(False), lambda p: read_arrays(p, ("X", "y"))),
    Format("compressed.mat", _matlab(True), lambda p: read_arrays(p, ("X", "y"))),
    Format("damaged inside.mat", _one_matlab_array, lambda p: read_arrays(p, ("X", "y")), _matlab_packed),
    Format("plain.idx", _idx, read_idx),
    Format("idx.gz", lambda f: gzip.compress(_idx(f)), read_idx),
    Format("damaged inside.idx.gz", _idx, read_idx, gzip.compress),
    Format("arrays.npz", _npz, ng.data.load),
    Format("damaged inside.npz", _npy, ng.data.load, _npz_of),
    Format("array.npy", _npy_of_rows, read_array),
    Format("table.csv", _csv, lambda p: ng.data.load(p, label="label")),
    Format("table.parquet", _parquet, lambda p: ng.data.load(p, label="label")),
    Format("labels.txt", _labels, load_labels),
    Format("picture.png", _picture("PNG"), lambda p: decode(p, 8, 3)),
    Format("picture.jpg", _picture("JPEG"), lambda p: decode(p, 8, 3)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_damaged_file_is_an_error_of_ours(form, tmp_path, try_all):
    content, path = form.sound(tmp_path), tmp_path / form.name
    path.write_bytes(form.pack(content))
    assert form.read(path) is not None  # undamaged, it is read
    try_all(content, path, form.read, form.pack)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "m"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    clf = ng.NoisyLabelClassifier(method="ce", network="mlp-8", recipe={"epochs": 1}, device="cpu")
    clf.fit(x, np.where(x[:, 0] > 0, "yes", "no")).save(folder)
    return folder


def _under_its_checksum(content: bytes) -> bytes:
    """A damaged description with a checksum of its own, as somebody could write it on purpose."""
    try:
        return json.dumps(with_checksum(json.loads(content))).encode()
    except (ValueError, TypeError, AttributeError):  # not a JSON object
        return content


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("pattern", "pack"),
    [
        pytest.param("model.json", bytes, id="model.json"),
        pytest.param("model.json", _under_its_checksum, id="model.json with its checksum"),
        pytest.param("weights-*.safetensors", bytes, id="weights"),
    ],
)
def test_a_damaged_model_is_an_error_of_ours(model, tmp_path, pattern, pack, try_all):
    for file in model.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (path,) = tmp_path.glob(pattern)
    x = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    sound = ng.NoisyLabelClassifier.load(tmp_path).predict_proba(x)

    def read(_: Path) -> object:
        clf = ng.NoisyLabelClassifier.load(tmp_path)
        probs = clf.predict_proba(x)
        if pack is bytes:  # no changed number of a model is used
            np.testing.assert_array_equal(probs, sound)
        return probs

    try_all(path.read_bytes(), path, read, pack)


def test_a_model_of_impossible_size_is_refused_before_it_is_built(model, tmp_path):
    for file in model.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    description = json.loads((tmp_path / "model.json").read_text())
    description["network"]["network"] = "mlp-40000-40000"
    (tmp_path / "model.json").write_text(json.dumps(with_checksum(description)))
    with pytest.raises(NoisegateError):
        ng.NoisyLabelClassifier.load(tmp_path)
