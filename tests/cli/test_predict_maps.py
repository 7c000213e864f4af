"""Images with masks on the command line: fit on a folder, predict masks and uncertainty maps."""

import io

import numpy as np
import pytest
from PIL import Image

from noisegate.cli import main
from noisegate.cli.predict_maps import side_by_side
from noisegate.data import load
from noisegate.data.masks import Coding


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


def test_images_beside_masks_are_predicted_and_the_masks_left(model, folder, tmp_path):
    for data, expected in (
        (folder / "test", {"0", "1", "2"}),
        (folder, {f"test/images/{i}" for i in range(3)}),
    ):
        out = tmp_path / data.name
        assert main(["predict", str(model), str(data), "--out", str(out), "--device", "cpu"]) == 0
        for kind in ("masks", "entropy", "pictures", "variance"):
            written = {
                str(path.relative_to(out / kind).with_suffix("")) for path in (out / kind).rglob("*.*")
            }
            assert expected <= written
            assert not [name for name in written if "masks" in name]
    # A dataset by its name: the test rows.
    assert main(["predict", str(model), "scenes", "--out", str(tmp_path / "named"), "--device", "cpu"]) == 0
    assert len(list((tmp_path / "named" / "masks").iterdir())) == 40


def test_pictures_show_where_the_model_is_uncertain():
    image, classes = np.full((3, 20, 30), 100, np.uint8), np.zeros((20, 30), np.uint8)
    classes[:, 15:] = 1
    entropy, variance = np.zeros((20, 30), np.float32), np.zeros((2, 20, 30), np.float16)
    entropy[:, 14:16], variance[:, 5:10] = 1, 0.25
    with Image.open(io.BytesIO(side_by_side(image, classes, entropy, variance, Coding(("a", "b"))))) as found:
        picture = np.asarray(found)
    assert picture.shape == (320, 4 * 480, 3)
    photograph, mask, doubt, spread = np.split(picture.astype(int), 4, axis=1)
    assert (photograph == 100).all()
    assert (mask[:, :230] == mask[0, 0]).all()
    assert (mask[:, 250:] == mask[-1, -1]).all()
    assert (mask[0, 0] != mask[-1, -1]).any()
    assert (doubt[:, 230:250].sum(2) > 600).all()
    assert (doubt[:, :200].sum(2) < 30).all()
    assert (spread[85:155].sum(2) > 600).all()
    assert (spread[170:].sum(2) < 30).all()


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
