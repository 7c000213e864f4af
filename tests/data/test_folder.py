import numpy as np
import pytest

from noisegate.data import ImageFiles, load
from noisegate.data import folder as folder_module
from noisegate.errors import DamagedFileError, InputError, MissingDataError


def test_sub_folders_are_classes_and_deeper_folders_do_not_matter(tmp_path, image_folder):
    pixels = image_folder(tmp_path / "pets", {"dog/old": 2, "cat": 2, "dog": 1})
    (tmp_path / "pets" / "empty").mkdir()
    (tmp_path / "pets" / "readme.txt").write_text("x")
    data = load(tmp_path / "pets")
    assert data.classes == ("cat", "dog")
    assert data.train.y.tolist() == [0, 0, 1, 1, 1]
    order = ["cat/000", "cat/001", "dog/000", "dog/old/000", "dog/old/001"]
    expected = [pixels[tmp_path / "pets" / f"{name}.png"] for name in order]
    np.testing.assert_array_equal(data.train.x, np.stack(expected).transpose(0, 3, 1, 2))
    assert data.test is None
    assert data.info["empty_folders"] == ["empty"]
    assert data.reader.to_dict() == {"kind": "images", "size": 8, "channels": 3}


def test_lazy_and_resident_hold_the_same_pixels(tmp_path, image_folder, monkeypatch):
    image_folder(tmp_path, {"a": 3, "b": 2}, size=(9, 12))
    held, lazy = load(tmp_path, size=8, resident=True), load(tmp_path, size=8, resident=False)
    assert isinstance(held.train.x, np.ndarray)
    assert isinstance(lazy.train.x, ImageFiles)
    assert lazy.train.input_shape == held.train.input_shape == (3, 8, 8)
    np.testing.assert_array_equal(lazy.train.x.fetch(np.arange(5)), held.train.x)
    rest = lazy.hold_out(2, seed=1)
    assert sorted([*rest.train.x.names, *rest.validation.x.names]) == sorted(lazy.train.x.names)
    monkeypatch.setattr(folder_module, "RESIDENT_BYTES", 5 * 3 * 64 - 1)
    assert isinstance(load(tmp_path, size=8).train.x, ImageFiles)
    monkeypatch.setattr(folder_module, "RESIDENT_BYTES", 5 * 3 * 64)
    assert isinstance(load(tmp_path, size=8).train.x, np.ndarray)
    with pytest.raises(InputError, match="resident must be"):
        load(tmp_path, resident="yes")


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["train", "val", "test"], {"train": "train", "validation": "val", "test": "test"}),
        (["train", "val"], {"train": "train", "test": "val"}),
        (["Training", "testing"], {"train": "Training", "test": "testing"}),
        (["train"], {"train": "train"}),
    ],
)
def test_split_folders(tmp_path, image_folder, folders, expected):
    for i, name in enumerate(folders, 1):
        image_folder(tmp_path / name, {"a": i, "b": 1})
    data = load(tmp_path)
    for part in ("train", "validation", "test"):
        split = getattr(data, part)
        if part in expected:
            assert len(split) == folders.index(expected[part]) + 2
        else:
            assert split is None
    assert data.classes == ("a", "b")


def test_train_may_be_a_class(tmp_path, image_folder):
    image_folder(tmp_path, {"train": 2, "car": 2})
    assert load(tmp_path).classes == ("car", "train")


def test_imagenets_val_is_its_test_set(tmp_path, image_folder, write_image):
    for part, n in (("train", 3), ("val", 2)):
        image_folder(tmp_path / "imagenet" / part, {"n01440764": n, "n01443537": n}, size=(40, 30))
    write_image(tmp_path / "imagenet" / "test" / "unlabelled.png", np.zeros((8, 8)))
    for data in (load("imagenet", root=tmp_path), load(tmp_path / "imagenet", size=224)):
        assert (len(data.train), len(data.test), data.validation) == (6, 4, None)
        assert data.input_shape == (3, 224, 224)
    assert load("imagenet", root=tmp_path).name == "imagenet"


def test_folders_that_do_not_fit(tmp_path, image_folder, write_image):
    with pytest.raises(InputError, match=r"one sub-folder of images a class.*there are none"):
        load(tmp_path)
    image_folder(tmp_path / "train", {"a": 1, "b": 1})
    image_folder(tmp_path / "val", {"a": 1, "c": 1})
    with pytest.raises(InputError, match="class folders that training has not: c"):
        load(tmp_path)
    image_folder(tmp_path / "flat" / "train", {"a": 1, "b": 1})
    write_image(tmp_path / "flat" / "val" / "x.png", np.zeros((8, 8)))
    with pytest.raises(InputError, match="has no class folders"):
        load(tmp_path / "flat")
    image_folder(tmp_path / "one", {"a": 3})
    with pytest.raises(InputError, match=r"images in 1 of 1 sub-folders \(a\)"):
        load(tmp_path / "one")
    with pytest.raises(MissingDataError):
        load(tmp_path / "nowhere")


def test_a_damaged_image_is_named(tmp_path, image_folder):
    image_folder(tmp_path, {"a": 40, "b": 40})
    (tmp_path / "b" / "007.png").write_bytes(b"broken")
    with pytest.raises(DamagedFileError, match=r"007\.png"):
        load(tmp_path)


def test_a_linked_class_folder_needs_permission(tmp_path, image_folder):
    image_folder(tmp_path / "data", {"a": 2, "b": 2})
    image_folder(tmp_path / "elsewhere", {"c": 2})
    (tmp_path / "data" / "c").symlink_to(tmp_path / "elsewhere" / "c")
    with pytest.raises(InputError, match="follow_links=True"):
        load(tmp_path / "data")
    assert load(tmp_path / "data", follow_links=True).classes == ("a", "b", "c")


# Clothing1M


@pytest.fixture
def clothing(tmp_path, rng, write_image):
    """Six noisy rows, two clean training rows (one of them noisy too), two of validation, one of test."""
    folder = tmp_path / "Clothing1M"
    keys = [f"images/{i % 3}/{i},odd name.jpg" for i in range(10)]
    for key in keys:
        write_image(folder / key, rng.integers(0, 256, (12, 16, 3)))
    lists = {
        "noisy_train": keys[:6],
        "clean_train": keys[5:7],
        "clean_val": keys[7:9],
        "clean_test": keys[9:],
    }
    for name, listed in lists.items():
        (folder / f"{name}_key_list.txt").write_text("\n".join(listed) + "\n")
    (folder / "noisy_label_kv.txt").write_text("".join(f"{k} {i % 14}\n" for i, k in enumerate(keys[:8])))
    (folder / "clean_label_kv.txt").write_text(
        "".join(f"{k} {(i + 1) % 14}\n" for i, k in enumerate(keys) if i > 4)
    )
    return folder


def test_clothing1m_has_noisy_training_and_clean_evaluation(clothing):
    data = load("clothing1m", root=clothing.parent, size=8)
    assert data.train.y.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.train.clean is None
    assert data.info["clean_known"] == 1
    assert data.validation.y.tolist() == data.validation.clean.tolist() == [8, 9]
    assert data.test.y.tolist() == [10]
    assert data.info["validation_labels"] == "clean"
    assert data.classes[:2] == ("T-Shirt", "Shirt")
    assert data.n_classes == 14
    assert data.train.x.shape == (6, 3, 8, 8)


def test_clothing1m_with_the_clean_rows(clothing):
    data = load(clothing, noisy_only=False, size=8, resident=False)
    assert data.train.y.tolist() == [0, 1, 2, 3, 4, 6, 7]  # row 5 is in both lists: its clean label counts
    assert data.train.x.names[-1] == "images/0/6,odd name.jpg"


def test_clothing1m_in_a_folder_of_annotations_with_its_own_names(clothing):
    (clothing / "annotations").mkdir()
    for path in clothing.glob("*.txt"):
        path.rename(clothing / "annotations" / path.name)
    (clothing / "category_names_eng.txt").write_text("\n".join(f"name {i}" for i in range(14)))
    data = load(clothing, size=8)
    assert data.classes[13] == "name 13"
    assert len(data.train) == 6


def test_clothing1m_clean_labels_are_given_where_all_are_known(clothing):
    keys = (clothing / "noisy_train_key_list.txt").read_text().splitlines()
    with open(clothing / "clean_label_kv.txt", "a") as file:
        file.writelines(f"{key} 3\n" for key in keys[:5])
    assert load(clothing, size=8).train.clean.tolist() == [3, 3, 3, 3, 3, 6]


@pytest.mark.parametrize(
    "key", ["/etc/x.jpg", "../x.jpg", "images/../../x.jpg", "~/x.jpg", "images\\..\\x.jpg"]
)
def test_keys_cannot_leave_the_folder(clothing, key):
    with open(clothing / "noisy_train_key_list.txt", "a") as file:
        file.write(f"{key}\n")
    with open(clothing / "noisy_label_kv.txt", "a") as file:
        file.write(f"{key} 0\n")
    with pytest.raises(InputError, match=r"noisy_train_key_list\.txt, line 7: .* leads outside"):
        load(clothing)


def test_a_linked_image_cannot_leave_the_folder(clothing):
    victim = clothing / "images/0/0,odd name.jpg"
    victim.rename(clothing.parent / "outside.jpg")
    victim.symlink_to(clothing.parent / "outside.jpg")
    with pytest.raises(InputError, match="leads outside"):
        load(clothing, size=8)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("noisy_train_key_list.txt", "images/0/unlabelled.jpg", r"noisy_label_kv\.txt has no label for"),
        ("noisy_train_key_list.txt", "images/0", "expected the path of an image"),
        ("noisy_label_kv.txt", "images/0/x.jpg 14", r"label 0\.\.13"),
        ("noisy_label_kv.txt", "images/0/x.jpg", "expected 'path label'"),
        ("clean_label_kv.txt", "images/0/x.jpg -1", "expected 'path label'"),
    ],
)
def test_damaged_key_files_are_named(clothing, file, line, message):
    with open(clothing / file, "a") as handle:
        handle.write(line + "\n")
    with pytest.raises(DamagedFileError, match=message):
        load(clothing)


def test_missing_key_file(clothing):
    (clothing / "clean_val_key_list.txt").unlink()
    with pytest.raises(MissingDataError, match="clean_val_key_list"):
        load("clothing1m", root=clothing.parent)
    with pytest.raises(MissingDataError, match="clean_val_key_list"):
        load(clothing)
