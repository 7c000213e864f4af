import pickle

import numpy as np
import pytest
import torch

from noisegate.data import load
from noisegate.data.named.cifar import CIFAR10N_SETS
from noisegate.errors import DamagedFileError, MissingDataError, UnknownNameError


@pytest.fixture
def cifar100_root(tmp_path, rng):
    folder = tmp_path / "root" / "cifar100" / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, n in (("train", 200), ("test", 100)):
        fine = np.arange(n) % 100
        batch = {
            b"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
            b"fine_labels": fine.tolist(),
            b"coarse_labels": (fine // 5).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    meta = {
        b"fine_label_names": [f"fine{i}".encode() for i in range(100)],
        b"coarse_label_names": [f"coarse{i}".encode() for i in range(20)],
    }
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return tmp_path / "root"


def batch_of(root, name):
    return pickle.loads((root / "cifar-10-batches-py" / name).read_bytes(), encoding="bytes")


def test_cifar10_keeps_order_and_planes(cifar10_root):
    data = load("cifar10", root=cifar10_root)
    assert data.train.x.shape == (100, 3, 32, 32)
    assert data.test.x.shape == (20, 3, 32, 32)
    third = batch_of(cifar10_root, "data_batch_3")
    # A row is 1024 red, 1024 green, 1024 blue values, line by line.
    assert data.train.x[41, 1, 2, 5] == third[b"data"][1, 1024 + 2 * 32 + 5]
    np.testing.assert_array_equal(data.train.y[40:60], third[b"labels"])
    assert data.classes[:2] == ("airplane", "automobile")
    assert data.reader.to_dict() == {"kind": "images", "size": 32, "channels": 3}


def test_cifar100_fine_and_coarse(cifar100_root):
    fine, coarse = load("cifar100", root=cifar100_root), load("cifar100", root=cifar100_root, coarse=True)
    assert (fine.n_classes, coarse.n_classes) == (100, 20)
    np.testing.assert_array_equal(coarse.train.y, fine.train.y // 5)
    assert coarse.classes[3] == "coarse3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": np.zeros((20, 3071), np.uint8)}, "N x 3072 bytes"),
        ({b"data": np.zeros((20, 3072), np.float32)}, "N x 3072 bytes"),
        ({b"labels": [0] * 19}, "expected 20 whole numbers"),
        ({b"labels": [0.5] * 20}, "expected 20 whole numbers"),
        ({b"labels": [10] * 20}, r"expected labels 0\.\.9, found 10\.\.10"),
        ({b"labels": None}, "expected 20 whole numbers"),
    ],
)
def test_batches_that_are_no_batches(cifar10_root, change, message):
    path = cifar10_root / "cifar-10-batches-py" / "data_batch_2"
    path.write_bytes(pickle.dumps({**batch_of(cifar10_root, "data_batch_2"), **change}))
    with pytest.raises(DamagedFileError, match=message) as error:
        load("cifar10", root=cifar10_root)
    assert "data_batch_2" in str(error.value)


def test_a_cut_off_batch_is_named(cifar10_root):
    path = cifar10_root / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DamagedFileError, match="test_batch is cut off"):
        load("cifar10", root=cifar10_root)
    path.unlink()
    with pytest.raises(MissingDataError, match="no test_batch in"):
        load("cifar10", root=cifar10_root)


def human_labels(root, n_classes=10, keys=None):
    clean = load("cifar10" if n_classes == 10 else "cifar100", root=root).train.y
    labels = {"clean_label": clean}
    for i, key in enumerate(keys or CIFAR10N_SETS.values(), 1):
        labels[key] = np.where(np.arange(len(clean)) % 10 < i, (clean + 1) % n_classes, clean)
    return labels


def write_human(root, labels, kind, stem="CIFAR-10_human", npz="cifar10n"):
    (root / "cifar-n").mkdir(exist_ok=True)
    if kind == "npz":
        np.savez(root / "cifar-n" / f"{npz}.npz", **labels)
    else:
        torch.save(labels, root / "cifar-n" / f"{stem}.pt")


@pytest.mark.parametrize("kind", ["pt", "npz"])
def test_human_labels_become_the_observed_ones(cifar10_root, kind):
    labels = human_labels(cifar10_root)
    write_human(cifar10_root, labels, kind)
    clean = load("cifar10", root=cifar10_root)
    for i, (name, key) in enumerate(CIFAR10N_SETS.items(), 1):
        for data in (
            load("cifar10n", root=cifar10_root, labels=name),
            load(f"cifar10n-{name}", root=cifar10_root),
        ):
            assert data.name == f"cifar10n-{name}"
            np.testing.assert_array_equal(data.train.y, labels[key])
            np.testing.assert_array_equal(data.train.clean, clean.train.y)
            np.testing.assert_array_equal(data.test.y, clean.test.y)
            assert data.info["noise_rate"] == pytest.approx(i / 10)
    with pytest.raises(UnknownNameError, match="did you mean 'worst'"):
        load("cifar10n", root=cifar10_root, labels="worse")


def test_human_labels_of_cifar100(cifar100_root):
    labels = human_labels(cifar100_root, 100, ("noisy_label",))
    write_human(cifar100_root, labels, "npz", npz="cifar100n")
    data = load("cifar100n", root=cifar100_root)
    np.testing.assert_array_equal(data.train.y, labels["noisy_label"])
    assert data.train.wrong.mean() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda labels: {**labels, "clean_label": np.roll(labels["clean_label"], 1)},
            "differ from those of cifar10 in",
        ),
        (lambda labels: {k: v[:-1] for k, v in labels.items()}, "expected 100 whole numbers"),
        (lambda labels: {k: v for k, v in labels.items() if k != "worse_label"}, "'worse_label'"),
        (lambda labels: {**labels, "worse_label": labels["worse_label"] + 5}, r"expected labels 0\.\.9"),
    ],
)
def test_human_labels_of_other_images_are_refused(cifar10_root, change, message):
    write_human(cifar10_root, change(human_labels(cifar10_root)), "pt")
    with pytest.raises(DamagedFileError, match=message):
        load("cifar10n", root=cifar10_root, labels="worst")
