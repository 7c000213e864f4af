"""Model folders: what is saved comes back, and nothing in them is executed or half written."""

import hashlib
import json
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate._io.models import HASH_DIGITS, weights_name, with_checksum
from noisegate._io.trees import load_tree, save_tree
from noisegate.errors import BusyError, DamagedFileError, InputError, MissingDataError, UnknownNameError


@pytest.fixture(scope="module")
def digits():
    return ng.data.load("digits").corrupt(ng.noise.Symmetric(0.2), seed=0)


@pytest.fixture(scope="module")
def fitted(digits):
    fitted = ng.train(digits, "ln", recipe={"epochs": 3}, seed=0, device="cpu")
    fitted.extras = {"transition": np.eye(10), "rate": 0.2}
    return fitted


def test_a_model_comes_back_as_it_was(fitted, digits, tmp_path):
    fitted.save(tmp_path / "model", note={"a": 1})
    back = ng.Fitted.load(tmp_path / "model")
    assert np.array_equal(back.predict_proba(digits.test.x), fitted.predict_proba(digits.test.x))
    assert (back.classes, back.metrics, back.history) == (fitted.classes, fitted.metrics, fitted.history)
    assert back.record == fitted.record
    assert back.extras["rate"] == 0.2
    assert torch.equal(back.extras["transition"], torch.eye(10, dtype=torch.float64))
    assert sorted(p.suffix for p in (tmp_path / "model").iterdir() if p.name != ".lock") == [
        ".json",
        ".md",
        ".safetensors",
    ]
    assert json.loads((tmp_path / "model" / "model.json").read_text())["note"] == {"a": 1}


def test_saving_again_replaces_the_weights_and_leaves_no_old_ones(fitted, tmp_path):
    fitted.save(tmp_path)
    other = ng.Fitted.load(tmp_path)
    nn.init.zeros_(other.network.network.head.bias)
    other.save(tmp_path)
    assert len(list(tmp_path.glob("weights-*"))) == 1
    assert not ng.Fitted.load(tmp_path).network.network.head.bias.any()


def test_a_row_does_not_depend_on_the_rows_beside_it(fitted, digits):
    together = fitted.predict_proba(digits.test.x)
    alone = np.concatenate([fitted.predict_proba(digits.test.x[k : k + 1]) for k in range(20)])
    np.testing.assert_allclose(alone, together[:20], rtol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(digits.test.x, batch_size=7), together, rtol=1e-12)
    np.testing.assert_allclose(together.sum(1), 1, rtol=1e-14)


def test_inputs_of_another_shape_are_refused(fitted):
    with pytest.raises(InputError, match=r"expected inputs of shape \(64,\) each, got \(63,\)"):
        fitted.predict_proba(np.zeros((2, 63)))
    with pytest.raises(InputError, match="row 1 has NaN"):
        fitted.predict_proba(np.array([[0.0] * 64, [np.nan] * 64]))


def test_images_are_those_of_training_or_their_middle():
    data = ng.data.load("digits", as_images=True)
    fitted = ng.train(data, "ce", recipe={"epochs": 1, "crop_to": 6}, device="cpu")
    assert fitted.predict_proba(data.test.x).shape == (450, 10)
    cropped = fitted.predict_proba(data.test.x[:, :, 1:7, 1:7])
    np.testing.assert_array_equal(cropped, fitted.predict_proba(data.test.x))
    for size in ((5, 8), (9, 9), (7, 7)):
        with pytest.raises(InputError, match=r"shape \(1, 6, 6\) or \(1, 8, 8\) each, got \(1, "):
            fitted.predict_proba(np.zeros((2, *size), np.uint8))


def own_network(shape, n_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 12), nn.Tanh(), nn.Linear(12, n_outputs))


def test_a_users_own_network_is_handed_over_again(digits, tmp_path):
    fitted = ng.train(digits, "ln", own_network, {"epochs": 2}, device="cpu")
    fitted.save(tmp_path)
    with pytest.raises(InputError, match="hand its factory over as network="):
        ng.Fitted.load(tmp_path)
    back = ng.Fitted.load(tmp_path, network=own_network)
    assert np.array_equal(back.predict_proba(digits.test.x), fitted.predict_proba(digits.test.x))
    with pytest.raises(DamagedFileError, match="do not fit its network"):
        ng.Fitted.load(tmp_path, network=lambda shape, n: nn.Linear(shape[0], n))


def test_what_is_not_a_model_folder_is_named(fitted, tmp_path):
    with pytest.raises(MissingDataError, match="not a model folder"):
        ng.Fitted.load(tmp_path)
    (tmp_path / "model.json").write_text("{not json")
    with pytest.raises(DamagedFileError, match=r"model\.json is not readable JSON"):
        ng.Fitted.load(tmp_path)
    (tmp_path / "model.json").write_text("[1]")
    with pytest.raises(DamagedFileError, match="does not describe a noisegate model"):
        ng.Fitted.load(tmp_path)
    (tmp_path / "model.json").write_text('{"format": 1}')
    with pytest.raises(DamagedFileError, match="lacks classes"):
        ng.Fitted.load(tmp_path)
    (tmp_path / "model.json").write_text('{"format": 99, "noisegate": "7.0"}')
    with pytest.raises(InputError, match=r"has format 99.*use the version that wrote it \(7\.0\)"):
        ng.Fitted.load(tmp_path)


def test_damaged_models_are_named(fitted, tmp_path):
    fitted.save(tmp_path)
    path = tmp_path / "model.json"
    description = json.loads(path.read_text())
    path.write_text(
        json.dumps(with_checksum(description | {"objective": {"name": "os.system", "settings": {}}}))
    )
    with pytest.raises(UnknownNameError, match=r"unknown objective 'os\.system'"):
        ng.Fitted.load(tmp_path)
    # A path in the description cannot lead out of the folder.
    path.write_text(json.dumps(with_checksum(description | {"weights": "../../etc/passwd"})))
    with pytest.raises(MissingDataError, match="no file .*passwd"):
        ng.Fitted.load(tmp_path)
    path.write_text(json.dumps(description))
    (weights,) = tmp_path.glob("weights-*")
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(DamagedFileError, match="weights-"):
        ng.Fitted.load(tmp_path)


def test_a_full_disk_loses_nothing_and_leaves_no_half_file(fitted, digits, tmp_path):
    fitted.save(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    expected = fitted.predict_proba(digits.test.x)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # The operating system refuses to write files beyond 100 kB, as a full disk does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(OSError):
            fitted.save(tmp_path)
        with pytest.raises(OSError):
            fitted.save(tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before
    assert [p.name for p in (tmp_path / "new").iterdir()] == [".lock"]
    assert np.array_equal(ng.Fitted.load(tmp_path).predict_proba(digits.test.x), expected)


def test_two_processes_cannot_save_into_one_folder_at_once(fitted, tmp_path):
    holder = (
        "import time\nfrom noisegate._io.lock import locked\n"
        f"with locked({str(tmp_path)!r}, 'saving a model'):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match="another process is saving a model"):
            fitted.save(tmp_path)
        process.kill()
    fitted.save(tmp_path)
    assert ng.Fitted.load(tmp_path).classes == fitted.classes


def test_a_network_from_elsewhere_cannot_be_saved(tmp_path):
    with pytest.raises(InputError, match=r"built through job\.network"):
        ng.Fitted(nn.Linear(2, 3), ng.CrossEntropy(3)).save(tmp_path)


def test_pictures_must_be_of_the_size_of_training():
    x = np.random.default_rng(0).integers(0, 256, (8, 3, 16, 16), dtype=np.uint8)
    fitted = ng.train((x, np.arange(8) % 2), "ce", "resnet20", {"epochs": 1, "batch_size": 4}, device="cpu")
    for shape in ((20, 10), (10, 20), (17, 4), (16, 8), (20, 16), (32, 32)):
        with pytest.raises(InputError, match=r"expected inputs of shape \(3, 16, 16\) each"):
            fitted.predict_proba(np.zeros((2, 3, *shape), np.uint8))


def test_pictures_must_be_of_the_kind_of_training():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (16, 1, 8, 8), dtype=np.uint8)
    y, recipe = np.arange(16) % 2, {"epochs": 1, "batch_size": 8}
    fitted = ng.train((pixels, y), "ce", "lenet5", recipe, device="cpu")
    found = fitted.predict_proba(pixels)
    np.testing.assert_allclose(fitted.predict_proba(pixels / 255.0), found, atol=1e-6)
    with pytest.raises(InputError, match="give it uint8, or numbers from 0 to 1"):
        fitted.predict_proba(pixels.astype(np.float32))
    fitted = ng.train((pixels.astype(np.float32), y), "ce", "lenet5", recipe, device="cpu")
    fitted.predict_proba(pixels.astype(np.float64))
    with pytest.raises(InputError, match="convert them alike"):
        fitted.predict_proba(pixels)


def _saved(tmp_path):
    data = ng.data.load("moons", n=40)
    fitted = ng.train(data, "ce", "mlp-4", {"epochs": 1}, device="cpu")
    fitted.save(tmp_path / "m")
    return fitted, tmp_path / "m"


def _store_weights(folder, change):
    """Write changed weights under the name that their hash asks for."""
    (path,) = folder.glob("weights-*.safetensors")
    tree = load_tree(path)
    change(tree)
    save_tree(path, tree)
    name = f"weights-{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.safetensors"
    path.rename(folder / name)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(with_checksum(description | {"weights": name})))


def test_changed_weights_are_noticed_by_their_hash(tmp_path):
    _, folder = _saved(tmp_path)
    (path,) = folder.glob("weights-*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="its content has the hash"):
        ng.Fitted.load(folder)


def _leaves(node, path=()):
    """The places of all values in nested dicts and lists."""
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from _leaves(node[key], (*path, key))
    else:
        yield path


def test_any_changed_value_of_a_description_is_noticed(tmp_path):
    _, folder = _saved(tmp_path)
    whole = (folder / "model.json").read_text()
    places = list(_leaves(json.loads(whole)))
    assert len(places) > 50
    for path in places:
        description = json.loads(whole)
        inner = description
        for key in path[:-1]:
            inner = inner[key]
        value = inner[path[-1]]
        inner[path[-1]] = f"{value}x" if isinstance(value, str) else (value or 0) + 1
        (folder / "model.json").write_text(json.dumps(description))
        with pytest.raises(InputError, match="format|checksum"):
            ng.Fitted.load(folder)


@pytest.mark.parametrize(
    ("old", "new"), [('"checksum"', '"chexksum"'), ('"format": 2', '"format": 1'), ('"mlp-4"', '"mlp-8"')]
)
def test_damage_of_the_checksum_or_format_is_noticed(tmp_path, old, new):
    _, folder = _saved(tmp_path)
    whole = (folder / "model.json").read_text()
    assert old in whole
    (folder / "model.json").write_text(whole.replace(old, new))
    for read in (ng.Fitted.load, ng.NoisyLabelClassifier.load):
        with pytest.raises(DamagedFileError, match="does not have its checksum"):
            read(folder)


def test_a_description_may_be_laid_out_anew(tmp_path):
    fitted, folder = _saved(tmp_path)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description, indent=7))
    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(ng.Fitted.load(folder).predict_proba(x), fitted.predict_proba(x))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda w: torch.full_like(w, float("nan")), "holds NaN or infinity"),
        (lambda w: w.int(), r"should be torch\.float32"),
        (lambda w: w[:-1].clone(), r"should be torch\.float32 \(4, 2\) and is torch\.float32 \(3, 2\)"),
    ],
)
def test_weights_that_cannot_be_right_are_refused(tmp_path, value, message):
    _, folder = _saved(tmp_path)

    def change(tree):
        name = next(n for n, w in tree["network"].items() if tuple(w.shape) == (4, 2))
        tree["network"][name] = value(tree["network"][name])

    _store_weights(folder, change)
    with pytest.raises(DamagedFileError, match=message):
        ng.Fitted.load(folder)


@pytest.mark.parametrize("classes", [["a", "a"], ["a"], [{"x": 1}, "b"], "ab", [None, 1]])
def test_classes_that_cannot_be_right_are_refused(tmp_path, classes):
    _, folder = _saved(tmp_path)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(with_checksum(description | {"classes": classes})))
    with pytest.raises(DamagedFileError, match=r"should list 2"):
        ng.Fitted.load(folder)


def test_a_description_cannot_ask_for_gigabytes(tmp_path):
    _, folder = _saved(tmp_path)
    description = json.loads((folder / "model.json").read_text())
    description["network"]["network"] = "mlp-40000-40000"
    (folder / "model.json").write_text(json.dumps(with_checksum(description)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedFileError, match="do not fit its network"):
        ng.Fitted.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes


def test_dates_are_labels_too(tmp_path):
    days = np.array(["2024-01-01", "2025-01-01"], "datetime64[D]")
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    clf = ng.NoisyLabelClassifier("ce", "mlp-4", {"epochs": 1}, device="cpu").fit(x, days[(x[:, 0] > 0) * 1])
    clf.save(tmp_path / "m")
    loaded = ng.NoisyLabelClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(x), clf.predict(x))


MANY = {"kind": "ensemble", "members": [{"kind": "network", "name": "mlp-8"}] * 5000, "heads": [1] * 5000}
TREES = {"kind": "forest", "n_trees": 2, "n_nodes": 3, "n_leaves": 2, "n_outputs": 2, "depth": 10**12}
DEEP = {"kind": "ensemble", "members": [TREES], "heads": [1], "front": None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda tree, text: tree["network"].update(std=torch.zeros(4, dtype=torch.float64)), "above 0"),
        (lambda tree, text: tree["network"].update(mean=torch.zeros(1, dtype=torch.float64)), "should hold"),
        (lambda tree, text: text["objective"]["settings"].update(n_classes=5), "its objective needs 5"),
        (lambda tree, text: text.update(classes=["1", 1]), "different classes"),
        (lambda tree, text: text.update(classes=[float("nan"), 1.0]), "different classes"),
        (lambda tree, text: text.update(metrics=3), "metrics and history"),
        (lambda tree, text: text["network"].update(network="mlp-" + "-".join(["9"] * 20_000)), "more layers"),
        (lambda tree, text: text["network"].update(network="wrn-994-1000"), "more layers"),
        (lambda tree, text: text["network"].update(network=MANY), "more layers"),
        (lambda tree, text: text["network"].update(network=DEEP), "depth of trees"),
        (lambda tree, text: text["network"].update(raw_shape=None, pixels="no"), "pixels holds"),
        (lambda tree, text: text["network"].update(raw_shape=[[4]]), "raw_shape holds"),
        (lambda tree, text: text["network"].update(input_shape=[4.0]), "input_shape holds"),
        (lambda tree, text: text["network"].update(network="\x1b[31mred" * 1000), "unknown network"),
        (lambda tree, text: text["network"].update(network="mlp-" + "9" * 30), "is cut off or"),
    ],
)
def test_a_model_that_is_not_one_is_refused_in_few_words(tmp_path, changes, words):
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    clf = ng.NoisyLabelClassifier(method="ce", network="mlp-8", recipe={"epochs": 1}, device="cpu")
    clf.fit(x, np.where(x[:, 0] > 0, "yes", "no")).save(tmp_path)
    (old,) = tmp_path.glob("weights-*")
    tree, text = load_tree(old), json.loads((tmp_path / "model.json").read_text())
    changes(tree, text)
    save_tree(tmp_path / "new", tree)
    text["weights"] = weights_name(hashlib.sha256((tmp_path / "new").read_bytes()).hexdigest()[:HASH_DIGITS])
    (tmp_path / "new").rename(tmp_path / text["weights"])
    (tmp_path / "model.json").write_text(json.dumps(with_checksum(text)))
    with pytest.raises(InputError, match=words) as refused:
        ng.NoisyLabelClassifier.load(tmp_path)
    message = str(refused.value).replace(str(tmp_path), "")
    assert len(message) <= 300
    assert message.isprintable()
