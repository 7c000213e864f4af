"""Images with masks on the command line: fit on a folder, predict masks and uncertainty maps."""

import numpy as np
import pytest
from PIL import Image

from noisegate.cli import main
from noisegate.data import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Drawn scenes as files; void is 255, and the classes are numbered 10, 20, 30, 40."""
    top = tmp_path_factory.mktemp("scenes")
    data = load("scenes", n=12, n_test=3)
    for part, split in (("train", data.train), ("test", data.test)):
        for kind in ("images", "masks"):
            (top / part / kind).mkdir(parents=True)
        for row in range(len(split)):
            Image.fromarray(split.x[row].transpose(1, 2, 0)).save(top / part / "images" / f"{row}.png")
            mask = np.where(split.y[row] < 0, 255, split.y[row]).astype(np.uint8)
            Image.fromarray(mask).save(top / part / "masks" / f"{row}.png")
    (top / "classes.txt").write_text("\n".join(data.classes))
    return top


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("model") / "model"
    options = ["--network", "deeplab-resnet18-os32", "--recipe", "epochs=1", "--recipe", "scales=[0.5,1.0]"]
    code = main(
        [
            "fit",
            str(folder),
            "--out",
            str(out),
            "--param",
            "n_samples=4",
            "--param",
            "n_samples_eval=8",
            "--method",
            "het-tau",
            "--device",
            "cpu",
            *options,
        ]
    )
    assert code == 0
    return out


def test_predict_writes_masks_and_uncertainty(model, folder, tmp_path, capsys):
    capsys.readouterr()
    out = tmp_path / "out"
    assert (
        main(["predict", str(model), str(folder / "test" / "images"), "--out", str(out), "--device", "cpu"])
        == 0
    )
    for row in range(3):
        with Image.open(out / "masks" / f"{row}.png") as mask:
            assert mask.mode == "P"
            assert mask.size == (64, 48)
            assert set(np.unique(np.asarray(mask))) <= {0, 1, 2, 3}
            assert mask.getpalette()[3:6] == [128, 0, 0]  # VOC's colour of class 1
        with Image.open(out / "entropy" / f"{row}.png") as entropy:
            assert entropy.mode == "L"
            assert entropy.size == (64, 48)
        variance = np.load(out / "variance" / f"{row}.npy")
        assert variance.shape == (4, 48, 64)
        assert variance.min() >= 0
        assert variance.max() <= 0.25 + 1e-3


def test_images_of_another_size_are_predicted_at_their_own(model, tmp_path):
    Image.fromarray(np.zeros((30, 90, 3), np.uint8)).save(tmp_path / "wide.png")
    assert (
        main(
            [
                "predict",
                str(model),
                str(tmp_path / "wide.png"),
                "--out",
                str(tmp_path / "o"),
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    with Image.open(tmp_path / "o" / "masks" / "wide.png") as mask:
        assert mask.size == (90, 30)


def test_a_file_or_no_place_to_write_to_is_refused(model, folder, tmp_path, capsys):
    images = str(folder / "test" / "images")
    assert main(["predict", str(model), images, "--out", str(tmp_path / "p.csv"), "--device", "cpu"]) != 0
    assert "writes a folder" in capsys.readouterr().err
    assert main(["predict", str(model), images, "--device", "cpu"]) != 0
    assert "--out FOLDER" in capsys.readouterr().err


def test_masks_that_cannot_be_trained_on_are_said_first(folder, tmp_path, capsys):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "images" / "a.png")
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(tmp_path / "masks" / "a.png")
    assert main(["fit", str(tmp_path), "--out", str(tmp_path / "model")]) != 0
    assert "a.png is of 9 x 8 pixels, its image of 8 x 8" in capsys.readouterr().err
