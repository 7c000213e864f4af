"""Folders of images and masks: layouts, what masks mean, and what is wrong with them."""

import io
import re

import numpy as np
import pytest
from PIL import Image

import noisegate as ng
from noisegate.cli.predict_maps import mask_png
from noisegate.data import reader_from_dict
from noisegate.data.maps import PaddedImages
from noisegate.data.masks import CITYSCAPES_IDS, Coding, mask_content, voc_palette
from noisegate.errors import DamagedFileError, InputError

VOID = -100


def write_image(path, height=12, width=16, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def write_mask(path, mask, palette=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(mask, np.uint8))
    if palette is not None:
        image.putpalette(np.array(palette, np.uint8).ravel().tolist())
    image.save(path)


def folder_of(top, masks, images="images", labels="masks"):
    for number, mask in enumerate(masks):
        write_image(top / images / f"{number}.png", *np.shape(mask)[:2], seed=number)
        write_mask(top / labels / f"{number}.png", mask)
    return top


def plain(n=3, top=3, shape=(12, 16), seed=0):
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, top, (n, *shape))
    masks[0, 0, :top] = np.arange(top)
    return masks


def test_a_folder_of_images_and_masks(tmp_path):
    masks = plain()
    masks[1, 3, 4] = 255
    data = ng.data.load(folder_of(tmp_path / "scenes", masks))
    assert data.train.maps
    assert data.name == "scenes"
    assert data.classes == ("0", "1", "2")
    assert data.train.y.dtype == np.int8
    assert np.array_equal(data.train.y, np.where(masks == 255, VOID, masks))
    with Image.open(tmp_path / "scenes" / "images" / "0.png") as image:
        first = np.asarray(image).transpose(2, 0, 1)
    assert np.array_equal(data.train.x[0], first)
    again = reader_from_dict(data.reader.to_dict())
    assert again == data.reader
    assert again.names(tmp_path / "scenes" / "images") == ["0.png", "1.png", "2.png"]
    assert len(data.hold_out(1).train) == 2


@pytest.mark.parametrize("style", ["split first", "kind first", "annot"])
def test_layouts_with_splits(tmp_path, style):
    for part, n in (("train", 3), ("val", 1), ("test", 2)):
        images, labels = {
            "split first": (f"{part}/images", f"{part}/labels"),
            "kind first": (f"images/{part}", f"masks/{part}"),
            "annot": (part, f"{part}annot"),
        }[style]
        folder_of(tmp_path, plain(n), images, labels)
    data = ng.data.load(tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (3, 1, 2)


def test_names_of_classes_come_from_a_file(tmp_path):
    folder_of(tmp_path, plain())
    (tmp_path / "classes.txt").write_text("sky\nroad\ncar\n")
    assert ng.data.load(tmp_path).classes == ("sky", "road", "car")


def test_smaller_images_are_padded_and_larger_ones_read_when_needed(tmp_path):
    masks = [plain(1)[0], plain(1, shape=(8, 20), seed=1)[0]]
    data = ng.data.load(folder_of(tmp_path, masks), resident=False)
    assert isinstance(data.train.x, PaddedImages)
    assert data.input_shape == (3, 12, 20)
    assert data.train.y.shape == (2, 12, 20)
    assert (data.train.y[1, 8:] == VOID).all()
    assert (data.train.y[0, :, 16:] == VOID).all()
    pixels = data.train.x.fetch(np.array([1, 0]))
    assert (pixels[0, :, 8:] == 127).all()
    assert pixels.dtype == np.uint8
    assert np.array_equal(data.train.x.take(np.array([1])).fetch(np.array([0]))[0], pixels[0])
    assert data.train.x.fingerprint() != data.train.x.take(np.array([1, 0])).fingerprint()


# What is wrong with masks is said before anything is trained, with the file and the likely mapping.


def wrong(tmp_path, masks, match, **options):
    with pytest.raises(InputError, match=match) as caught:
        ng.data.load(folder_of(tmp_path, masks), **options)
    return str(caught.value)


def test_values_outside_the_classes(tmp_path):
    masks = plain(6)
    masks[2:, 0, 0] = 9
    text = wrong(tmp_path, masks, r"2\.png holds 9", classes=["a", "b", "c"])
    assert "none of the 3 classes" in text
    assert "option void=NUMBER" in text
    # Told what it means, it is read.
    data = ng.data.load(tmp_path, classes=["a", "b", "c"], void=(9,))
    assert (data.train.y[2:, 0, 0] == VOID).all()


def test_values_numbered_from_one(tmp_path):
    masks = plain() + 1
    wrong(tmp_path, masks, r"numbered from 1 \(option values=1:0,2:1,3:2\)", classes=["a", "b", "c"])
    data = ng.data.load(tmp_path, classes="a,b,c", values="1:0,2:1,3:2")
    assert data.classes == ("a", "b", "c")
    assert np.array_equal(data.train.y, masks - 1)


def test_one_value_more_than_classes_is_likely_void(tmp_path):
    wrong(
        tmp_path,
        plain(top=4),
        r"likely 3 marks pixels without a label \(option void=3\)",
        classes=["a", "b", "c"],
    )


def test_masks_of_black_and_white(tmp_path):
    masks = 255 * plain(top=2)
    wrong(tmp_path, masks, r"\(option values=0:0,255:1\)")
    wrong(tmp_path, masks, r"255 is class 1 \(option values=0:0,255:1\)", classes=["a", "b"])
    data = ng.data.load(tmp_path, values={0: 0, 255: 1})
    assert np.array_equal(data.train.y, masks // 255)


def test_label_ids_of_cityscapes(tmp_path):
    masks, classes = plain(top=34, shape=(12, 40)), [str(k) for k in range(19)]
    text = wrong(tmp_path, masks, r"Cityscapes' labelIds, not trainIds", classes=classes)
    # What it says can be taken as it stands.
    options = dict(part.split("=") for part in re.findall(r"(?:values|void)=[\d:,]+", text))
    data = ng.data.load(tmp_path, classes=classes, **options)
    assert np.array_equal(data.train.y == 0, masks == 7)
    assert np.array_equal(data.train.y == VOID, ~np.isin(masks, CITYSCAPES_IDS))


@pytest.mark.parametrize("numbers", [[0, 1, 2, 70], [0, 100, 200], [9, 19, 29, 39, 49, 59, 69]])
def test_numbers_with_wide_gaps_are_no_classes(tmp_path, numbers):
    masks = np.array(numbers)[plain(top=len(numbers), shape=(12, 40))]
    masks[1:, 0, 0] = numbers[0]
    text = wrong(tmp_path, masks, rf"png holds {numbers[-1]}, .*masks hold only {len(numbers)}")
    mapping = ",".join(f"{number}:{label}" for label, number in enumerate(numbers[:5]))
    assert f"values={mapping}{',...' if len(numbers) > 5 else ''})" in text
    names = ",".join(map(str, range(len(numbers))))
    values = {number: label for label, number in enumerate(numbers)}
    assert set(np.unique(ng.data.load(tmp_path, classes=names, values=values).train.y)) == set(
        values.values()
    )


def test_a_few_classes_may_be_absent(tmp_path):
    assert len(ng.data.load(folder_of(tmp_path, np.array([0, 1, 5, 6])[plain(top=4)])).classes) == 7


def test_files_without_a_partner(tmp_path):
    folder_of(tmp_path, plain())
    write_image(tmp_path / "images" / "extra.png")
    (tmp_path / "images" / "1.png").unlink()
    with pytest.raises(InputError, match=r"train: 2 files have no partner.*extra\.png.*mask .*1\.png"):
        ng.data.load(tmp_path)


def test_masks_whose_names_have_an_ending_more(tmp_path):
    folder_of(tmp_path, plain())
    for mask in list((tmp_path / "masks").iterdir()):
        mask.rename(mask.with_name(f"{mask.stem}_L.png"))
    assert np.array_equal(ng.data.load(tmp_path).train.y, plain())


def test_masks_in_a_folder_of_an_unknown_name(tmp_path):
    folder_of(tmp_path, plain())
    (tmp_path / "masks").rename(tmp_path / "gt")
    with pytest.raises(
        InputError, match=r"gt holds files with the names of those in .*call the folder masks"
    ):
        ng.data.load(tmp_path)


def test_one_advice_for_all_files(tmp_path):
    text = wrong(tmp_path, plain(top=4), "none of the 3 classes", classes="a,b,c", void=[])
    assert text.count("0.png") == 1
    assert text.count("likely") == 1
    with pytest.raises(InputError, match="values must say NUMBER:CLASS"):
        ng.data.load(tmp_path, values="1-0")
    with pytest.raises(InputError, match="void must be one number or several"):
        ng.data.load(tmp_path, void="none")
    data = ng.data.load(tmp_path, classes="a,b,c", void=3)
    assert np.array_equal(data.train.y, np.where(plain(top=4) == 3, VOID, plain(top=4)))


def test_masks_written_as_jpeg(tmp_path):
    folder_of(tmp_path, 40 * plain())
    for mask in list((tmp_path / "masks").iterdir()):
        with Image.open(mask) as image:
            image.save(mask.with_suffix(".jpg"))
        mask.unlink()
    for options in ({"values": "0:0,40:1,80:2"}, {}):
        with pytest.raises(InputError, match="a JPEG blurs class numbers: write masks as PNG"):
            ng.data.load(tmp_path, **options)


def test_a_mask_of_another_size(tmp_path):
    folder_of(tmp_path, plain())
    write_mask(tmp_path / "masks" / "1.png", np.zeros((6, 8)))
    with pytest.raises(InputError, match=r"1\.png is of 8 x 6 pixels, its image of 16 x 12"):
        ng.data.load(tmp_path)


def test_colour_masks(tmp_path):
    colours = np.array(voc_palette(3), np.uint8)
    masks = plain()
    wrong(
        tmp_path,
        colours[masks],
        r"PASCAL VOC's classes 0, 1, 2 \(option palette=voc\)",
        classes=["a", "b", "c"],
    )
    assert np.array_equal(ng.data.load(tmp_path, palette="voc").train.y, masks)
    own = np.array([(10, 200, 30), (1, 2, 3), (9, 9, 8)], np.uint8)
    text = wrong(
        tmp_path / "own", own[masks], "colour image where class numbers are expected", classes=["a", "b", "c"]
    )
    assert "option palette=[[1,2,3],[9,9,8],[10,200,30]]" in text
    assert text.count("colour image") == 1
    assert "(also 1.png, 2.png" in text
    data = ng.data.load(tmp_path / "own", palette=own.tolist(), classes=["a", "b", "c"])
    assert np.array_equal(data.train.y, masks)
    with pytest.raises(InputError, match=r"holds the colours \(9, 9, 8\), which stand for no class"):
        ng.data.load(tmp_path / "own", palette=own[:2].tolist(), classes=["a", "b"])


def test_colour_masks_with_a_colour_for_no_label(tmp_path):
    colours = np.array([(1, 2, 3), (9, 9, 8), (255, 255, 255)], np.uint8)
    masks = plain()
    text = wrong(tmp_path, colours[masks], "colour image", classes=["a", "b"])
    assert (
        "palette=[[1,2,3],[9,9,8]], and void_colour=[255,255,255] if that marks pixels without a label"
        in text
    )
    given = {"palette": colours[:2].tolist(), "classes": "a,b"}
    with pytest.raises(InputError, match=r"\(255, 255, 255\), which stand for no class .* void_colour="):
        ng.data.load(tmp_path, **given)
    for void in ([255, 255, 255], "255,255,255"):
        data = ng.data.load(tmp_path, void_colour=void, **given)
        assert np.array_equal(data.train.y, np.where(masks == 2, VOID, masks))
    assert data.reader.coding.void_colour == (255, 255, 255)
    for colour in ([1, 2], [1, 2, 300], "red", 3):
        for name, value in (("palette", [colour]), ("void_colour", colour)):
            with pytest.raises(InputError, match=f"{name}: a colour is three numbers"):
                ng.data.load(tmp_path, **given | {name: value})


def test_images_in_place_of_masks(tmp_path):
    folder_of(tmp_path, plain(shape=(40, 40)))
    write_image(tmp_path / "masks" / "1.png", 40, 40)
    with pytest.raises(InputError, match="hundreds of colours, as a photograph has"):
        ng.data.load(tmp_path, classes=["a", "b", "c"])
    write_image(tmp_path / "masks" / "0.jpg", 40, 40)
    (tmp_path / "masks" / "0.png").unlink()
    for options in ({"classes": "a,b,c"}, {}):
        with pytest.raises(InputError, match="JPEG blurs .* were images and masks swapped"):
            ng.data.load(tmp_path, **options)


def test_a_damaged_mask_is_named(tmp_path):
    folder_of(tmp_path, plain())
    (tmp_path / "masks" / "1.png").write_bytes(b"no image")
    with pytest.raises(DamagedFileError, match=r"1\.png cannot be read as a mask"):
        ng.data.load(tmp_path)


def test_codings_survive_json_and_write_what_they_read():
    coding = Coding(("a", "b"), values={7: 0, 11: 1}, void=(0, 255), palette=((1, 2, 3), (4, 5, 6)))
    assert Coding.from_dict(coding.to_dict()) == coding
    given = np.array([[7, 11], [255, 0]])
    labels = coding.decode(given)
    assert labels.tolist() == [[0, 1], [VOID, VOID]]
    assert coding.encode(labels).tolist() == [[7, 11], [0, 0]]
    assert coding.colours().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_palette_image_is_its_indices(tmp_path):
    mask = plain(1)[0]
    write_mask(tmp_path / "m.png", mask, voc_palette())
    assert np.array_equal(mask_content(tmp_path / "m.png"), mask)
    with Image.open(tmp_path / "m.png") as image:
        assert image.mode == "P"
    assert voc_palette()[255] == (224, 224, 192)
    assert voc_palette()[15] == (192, 128, 128)  # a person


def test_masks_keep_the_colours_of_their_own_palette(tmp_path):
    # Numbers 10, 20 and 30 are the classes, 255 is void; each has a colour in the files' palette.
    palette = [(i, 0, 255 - i) for i in range(256)]
    for number, mask in enumerate(plain()):
        write_image(tmp_path / "images" / f"{number}.png", seed=number)
        write_mask(tmp_path / "masks" / f"{number}.png", np.array([10, 20, 255])[mask], palette)
    coding = ng.data.load(tmp_path, classes="a,b", values="10:0,20:1").reader.coding
    assert coding.palette == ((10, 0, 245), (20, 0, 235))
    assert coding.void_colour == (255, 0, 0)
    assert Coding.from_dict(coding.to_dict()) == coding
    with Image.open(io.BytesIO(mask_png(np.array([[0, 1]]), coding))) as image:
        assert np.asarray(image).tolist() == [[10, 20]]
        written = np.reshape(image.getpalette("RGB"), (-1, 3))
    assert [tuple(written[i]) for i in (10, 20, 255)] == [palette[i] for i in (10, 20, 255)]


def test_a_palette_that_does_not_tell_the_classes_apart_is_left(tmp_path):
    for number, mask in enumerate(plain()):
        write_image(tmp_path / "images" / f"{number}.png", seed=number)
        write_mask(tmp_path / "masks" / f"{number}.png", mask, [(0, 0, 0)] * 256)
    assert ng.data.load(tmp_path).reader.coding.palette is None


def test_labels_of_maps_are_checked():
    x, y = np.zeros((2, 3, 4, 4), np.uint8), np.zeros((2, 4, 4), np.int8)
    y[0, 0, 0], y[1, 1, 1] = VOID, 1
    data = ng.data.Dataset("d", ng.data.Split(x, y), classes=("a", "b"))
    other = y.copy()
    other[0, 1] = 1
    noisy = data.with_labels(other)
    assert noisy.noise_report().rate == pytest.approx(4 / 31)
    other[0, 2, 2] = 7
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.1, got 0\.\.7"):
        data.with_labels(other)
