"""Regions of masks as rows of an audit: stored, in the report and under review, corrected in the files."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from noisegate.auditing import audit_report, stored
from noisegate.auditing.apply import apply
from noisegate.auditing.content import Nothing, open_content
from noisegate.auditing.masks import audit_masks
from noisegate.auditing.regions import RegionPictures, StoredRegions
from noisegate.auditing.report import document, write_report
from noisegate.auditing.review.filters import Filter
from noisegate.auditing.review.session import Review
from noisegate.data import load
from noisegate.data.masks import voc_palette
from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.quality.maps import Region

#: Top, left and class of a square of 8 x 8 whose given class is wrong, by image.
WRONG = {1: [(4, 4, 2), (20, 20, 0)], 3: [(4, 8, 1)]}
FORMS = ["palette", "grey", "colour", "mapped"]


def truth(row):
    """Sky above ground, and a square of class 2 in the corner."""
    y = np.zeros((32, 48), np.uint8)
    y[14 + row :] = 1
    y[-8:, -10:] = 2
    return y


def given(row):
    y = truth(row)
    for top, left, label in WRONG.get(row, ()):
        y[top : top + 8, left : left + 8] = label
    return y


def write(form, labels, path):
    if form == "colour":
        Image.fromarray(np.array(voc_palette(3), np.uint8)[labels]).save(path)
        return
    picture = Image.fromarray(np.array([7, 11, 26], np.uint8)[labels] if form == "mapped" else labels)
    if form == "palette":
        picture.putpalette([9, 8, 7, 40, 50, 60, 255, 0, 255])
    picture.save(path)


OPTIONS = {
    "colour": {"palette": "voc", "classes": ["a", "b", "c"]},
    "mapped": {"values": {7: 0, 11: 1, 26: 2}},
}


@pytest.fixture
def audited(tmp_path, monkeypatch):
    """A function from the form of masks to a folder of data and its audit, by a network that knows the truth."""

    def make(form="palette"):
        top = tmp_path / "data"
        for name in ("images", "masks"):
            (top / name).mkdir(parents=True)
        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)
        for row, picture in enumerate(pictures):
            Image.fromarray(picture).save(top / "images" / f"{row}.png")
            write(form, given(row), top / "masks" / f"{row}.png")
        known = {picture.transpose(2, 0, 1).tobytes(): row for row, picture in enumerate(pictures)}

        class Fitted:
            def predict_proba(self, x):
                return (0.05 + 0.85 * np.eye(3)[truth(known[x[0].tobytes()])]).transpose(2, 0, 1)[None]

        monkeypatch.setattr("noisegate.runs.train.train", lambda *args, **kwargs: Fitted())
        data = load(str(top), **OPTIONS.get(form, {}))
        return data, audit_masks(data, folds=2, regions={"smallest": 10})

    return make


def saved(audited, tmp_path, form="palette"):
    data, found = audited(form)
    found.save(tmp_path / "audit", data, options=OPTIONS.get(form, {}))
    return data, stored.read(tmp_path / "audit")


def test_every_planted_region_is_a_row(audited, tmp_path):
    _, audit = saved(audited, tmp_path)
    lines = audit.rows
    assert sorted(lines["image"]) == ["images/1.png", "images/1.png", "images/3.png"]
    assert set(lines["pixels"]) == {64}
    assert lines["quality"].tolist() == pytest.approx([0.05] * 3)
    assert lines["suggested_probability"].tolist() == pytest.approx([0.9] * 3)
    regions = StoredRegions.read(audit)
    found = {(int(image), *box[:2]) for image, box in zip(regions.image, regions.boxes.tolist(), strict=True)}
    assert found == {(row, t, left) for row, squares in WRONG.items() for t, left, _ in squares}
    assert len(audit_report.AuditReport.load(tmp_path / "audit").issues) == 3


def test_pixels_of_regions_survive_packing():
    rng = np.random.default_rng(1)
    regions = []
    for number in range(9):
        mask = rng.random((1 + number % 4, 3 + number)) < 0.5
        regions.append(
            (number, Region(0, 1, 1, 0.5, 0.5, (2, 3, 2 + mask.shape[0], 3 + mask.shape[1]), mask))
        )
    packed = StoredRegions.of(regions)
    for row, (_, region) in enumerate(regions):
        assert np.array_equal(packed.mask(row), region.mask)


def test_pictures_show_the_suggested_class(audited, tmp_path):
    _, audit = saved(audited, tmp_path, "colour")
    content = open_content(audit)
    assert isinstance(content, RegionPictures)
    row = int(audit.rows.loc[audit.rows["image"] == "images/3.png", "row"].iloc[0])
    view = content.view(row)
    assert view.cells[1] == ("region", "64 pixels, rows 4 to 11, columns 8 to 15")
    shown = {}
    for layer in view.layers:
        with Image.open(io.BytesIO(content.picture(row, layer, 96))) as picture:
            shown[layer] = np.asarray(picture.convert("RGB")).astype(int)
    # Two pixels of the picture for one of the image; the whole image has rows 0 to 31.
    whole = shown["whole image, suggested"]
    assert whole.shape == (64, 96, 3)
    assert whole[9, 17].tolist() == [255, 0, 0]  # the frame
    photograph = np.asarray(Image.open(tmp_path / "data/images/3.png")).astype(float)[7, 11]
    blend = 0.3 * (0.65 * photograph + 0.35 * np.array(voc_palette(3)[1])) + 0.7 * np.array(voc_palette(3)[0])
    assert np.abs(whole[15, 23] - blend).max() <= 1
    assert (shown["given"] != shown["photograph"]).any()
    with pytest.raises(MissingDataError, match="no picture 'other'"):
        content.picture(row, "other", 96)


def test_the_report_lists_masks_and_regions(audited, tmp_path):
    _, audit = saved(audited, tmp_path)
    page = write_report(tmp_path / "audit").read_text()
    assert "5 masks in 3 classes. 3 regions in 2 of them" in page
    assert '<a href="#row-0">images/1.png</a>' in page
    assert "The 3 worst regions" in page
    assert "rows to look at" not in page
    assert "Masks, worst first" in page
    assert '<rect width="12" height="12" fill="#28323c"/></svg> <bdi>1</bdi>' in page
    content = document(audit)
    assert [line["file"] for line in content["images"]["worst"]][:2] == ["images/1.png", "images/3.png"]
    assert all(len(row["pictures"]) == 4 and not row["problem"] for row in content["rows"])


@pytest.mark.parametrize("form", FORMS)
def test_decisions_correct_the_mask_files(audited, tmp_path, form):
    _, audit = saved(audited, tmp_path, form)
    review = Review(audit)
    rows = review.rows(Filter())["rows"]
    # Of image 1 one region is taken over and one kept, the one of image 3 gets a class of its own.
    third = next(line for line in rows if "images/3.png" in line["id"])
    first, second = (line for line in rows if "images/1.png" in line["id"])
    choices = [
        {"row": first["row"], "decision": "accept", "seen": 0},
        {"row": second["row"], "decision": "keep", "seen": 0},
        {"row": third["row"], "decision": "choose", "label": 2, "seen": 0},
    ]
    review.decide(choices, reviewer="me", key="k" * 10)
    review.close()
    done = apply(tmp_path / "audit", tmp_path / "new")
    assert (done.changed, done.decided) == (2, 3)
    expected = [given(row) for row in range(5)]
    regions = StoredRegions.read(audit)
    for line, code in ((first, first["suggested"]), (third, 2)):
        top, left, bottom, right = regions.boxes[line["row"]]
        expected[int(regions.image[line["row"]])][top:bottom, left:right][regions.mask(line["row"])] = code
    again = load(str(tmp_path / "new"), **OPTIONS.get(form, {}))
    assert np.array_equal(again.train.y, expected)
    for row in range(5):
        old, new = (tmp_path / name / "masks" / f"{row}.png" for name in ("data", "new"))
        assert row in (1, 3) or old.read_bytes() == new.read_bytes()
        with Image.open(old) as before, Image.open(new) as after:
            assert (before.mode, before.getpalette()) == (after.mode, after.getpalette())
    assert "images/1.png, region" in (tmp_path / "new.changes.csv").read_text()


def test_a_mask_that_has_changed_is_not_written_over(audited, tmp_path):
    _, audit = saved(audited, tmp_path)
    review = Review(audit)
    choices = [{"row": 0, "decision": "accept", "seen": 0}]
    review.decide(choices, reviewer="me", key="k" * 10)
    review.close()
    Image.new("L", (5, 5), 200).save(tmp_path / "data/masks/1.png")
    with pytest.raises(InputError, match="has changed since it was audited"):
        apply(tmp_path / "audit", tmp_path / "new")
    with pytest.raises((InputError, DamagedFileError), match=r"1\.png"):
        apply(tmp_path / "audit", tmp_path / "new", force=True)
    assert not (tmp_path / "new").exists()


def test_names_that_lead_out_of_the_folder_are_refused(audited, tmp_path):
    _, audit = saved(audited, tmp_path)
    Image.new("RGB", (48, 32)).save(tmp_path / "secret.png")
    pairs = {row: ["../secret.png", mask] for row, (_, mask) in audit.info["pairs"].items()}
    other = dataclasses.replace(audit, info=dict(audit.info) | {"pairs": pairs})
    with pytest.raises(InputError, match="leads out of"):
        open_content(other).view(0)


def test_images_from_memory_are_kept(audited, tmp_path):
    data, found = audited()
    without = dataclasses.replace(data, info={}, reader=None)
    found.save(tmp_path / "audit", without)
    content = open_content(stored.read(tmp_path / "audit"))
    assert content.picture(0, "photograph", 96)
    with pytest.raises(InputError, match="export the decisions"):
        apply(tmp_path / "audit", tmp_path / "new")


def test_damaged_files_are_told(audited, tmp_path):
    saved(audited, tmp_path)
    (tmp_path / "audit" / "regions.npz").unlink()
    found = open_content(stored.read(tmp_path / "audit"))
    assert isinstance(found, Nothing)
    assert "audit the masks again" in found.view(0).problem
