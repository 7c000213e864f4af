"""VOC, Cityscapes and CamVid in their own layouts, on small files."""

import numpy as np
import pytest
from PIL import Image

import noisegate as ng
from noisegate.data.masks import CITYSCAPES_IDS, voc_palette
from noisegate.data.named.segmentation import CITYSCAPES_CLASSES
from noisegate.errors import InputError, MissingDataError

VOID = -100


def save(path, pixels, palette=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels, np.uint8))
    if palette is not None:
        image.putpalette(np.array(palette, np.uint8).ravel().tolist())
    image.save(path)


def masks_of(n, top, shape=(6, 8), seed=0):
    return np.random.default_rng(seed).integers(0, top, (n, *shape))


@pytest.fixture
def voc(tmp_path):
    top = tmp_path / "VOCdevkit" / "VOC2012"
    masks = masks_of(4, 21)
    masks[0, 0, 0] = 255
    for number, mask in enumerate(masks):
        save(top / "JPEGImages" / f"2007_{number}.jpg", np.full((6, 8, 3), 50 * number))
        for folder in ("SegmentationClass", "SegmentationClassAug"):
            save(top / folder / f"2007_{number}.png", mask, voc_palette())
    sets = top / "ImageSets" / "Segmentation"
    sets.mkdir(parents=True)
    (sets / "train.txt").write_text("2007_0\n2007_1\n")
    (sets / "val.txt").write_text("2007_3\n")
    (sets / "trainaug.txt").write_text("2007_0\n2007_1\n2007_2\n")
    return tmp_path, masks


def test_voc(voc):
    root, masks = voc
    data = ng.data.load("voc2012", root=root)
    assert data.n_classes == 21
    assert data.classes[0] == "background"
    assert data.classes[15] == "person"
    assert data.train.x.shape == (2, 3, 6, 8)
    assert np.array_equal(data.train.y, np.where(masks[:2] == 255, VOID, masks[:2]))
    assert np.array_equal(data.test.y[0], masks[3])
    assert len(ng.data.load("voc2012", root=root, train="train_aug").train) == 3
    with pytest.raises(InputError, match="train must be one of"):
        ng.data.load("voc2012", root=root, train="all")
    with pytest.raises(MissingDataError, match=r"trainval\.txt"):
        ng.data.load("voc2012", root=root, train="trainval")


def test_lists_of_voc_stay_in_the_folder(voc):
    root, _ = voc
    (root / "VOCdevkit/VOC2012/ImageSets/Segmentation/train.txt").write_text("../../../secret\n")
    with pytest.raises(InputError, match="leads outside"):
        ng.data.load("voc2012", root=root)


@pytest.fixture
def cityscapes(tmp_path):
    top = tmp_path / "cityscapes"
    for part, cities in (("train", ("aachen", "bochum")), ("val", ("lindau",))):
        for city in cities:
            name = f"{part}/{city}/{city}_000000_000019"
            save(top / f"leftImg8bit/{name}_leftImg8bit.png", np.zeros((6, 8, 3)))
            save(top / f"gtFine/{name}_gtFine_labelIds.png", masks_of(1, 34)[0])
    return tmp_path


def test_cityscapes_label_ids(cityscapes):
    data = ng.data.load("cityscapes", root=cityscapes)
    assert data.n_classes == 19
    assert tuple(number for _, number, _ in CITYSCAPES_CLASSES) == CITYSCAPES_IDS
    assert (len(data.train), len(data.test)) == (2, 1)
    ids, y = masks_of(1, 34)[0], data.train.y[0]
    for label, (_, number, _) in enumerate(CITYSCAPES_CLASSES):
        assert (y[ids == number] == label).all()
    known = [number for _, number, _ in CITYSCAPES_CLASSES]
    assert (y[~np.isin(ids, known)] == VOID).all()
    assert [number for _, number, _ in CITYSCAPES_CLASSES] == sorted(known)


def test_cityscapes_train_ids_are_taken_where_they_are(cityscapes):
    top = cityscapes / "cityscapes" / "gtFine"
    wanted = masks_of(1, 19, seed=3)[0]
    wanted[0, 0] = 255
    for path in list(top.glob("*/*/*_labelIds.png")):
        save(path.with_name(path.name.replace("labelIds", "labelTrainIds")), wanted)
    data = ng.data.load("cityscapes", root=cityscapes)
    assert np.array_equal(data.train.y[1], np.where(wanted == 255, VOID, wanted))
    assert data.info["ids"] == "trainIds"
    again = ng.data.load("cityscapes", root=cityscapes, ids="labelIds")
    assert again.info["ids"] == "labelIds"


def test_camvid(tmp_path):
    for part, n in (("train", 2), ("val", 1), ("test", 1)):
        for number, mask in enumerate(masks_of(n, 12)):
            save(tmp_path / "camvid" / part / f"{number}.png", np.zeros((6, 8, 3)))
            save(tmp_path / "camvid" / f"{part}annot" / f"{number}.png", mask)
    data = ng.data.load("camvid", root=tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (2, 1, 1)
    assert data.classes[:4] == ("sky", "building", "pole", "road")
    mask = masks_of(2, 12)
    assert np.array_equal(data.train.y, np.where(mask == 11, VOID, mask))
    (tmp_path / "camvid" / "trainannot" / "0.png").unlink()
    with pytest.raises(InputError, match="camvid train: 1 file has no partner"):
        ng.data.load("camvid", root=tmp_path)
