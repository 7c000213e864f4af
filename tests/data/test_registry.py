from pathlib import Path

import numpy as np
import pytest

from noisegate.data import DATASETS, from_arrays, load, register, root_folder
from noisegate.data.registry import Source, find
from noisegate.errors import InputError, MissingDataError, UnknownNameError


def test_root_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("NOISEGATE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert root_folder() == tmp_path / "cache" / "noisegate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert root_folder() == tmp_path / "home" / ".cache" / "noisegate"
    monkeypatch.setenv("NOISEGATE_DATA", str(tmp_path / "variable"))
    assert root_folder() == tmp_path / "variable"
    assert root_folder(tmp_path / "argument") == tmp_path / "argument"
    assert root_folder("~/x") == tmp_path / "home" / "x"


def test_registering_makes_a_dataset_loadable(monkeypatch):
    monkeypatch.setattr("noisegate.data.registry.DATASETS", DATASETS)
    try:

        @register("two-rows", "two rows")
        def two_rows(*, seed, scale=1.0):
            return from_arrays(scale * np.eye(2) + seed, [0, 1], name="two-rows")

        assert load("two-rows", seed=3, scale=2.0).train.x.tolist() == [[5, 3], [3, 5]]
        assert load("Two_Rows").name == "two-rows"
        with pytest.raises(InputError, match=r"two-rows has no option 'sclae' \(it takes: scale\)"):
            load("two-rows", sclae=2)
    finally:
        DATASETS.pop("two-rows", None)


def test_every_dataset_has_one_line_and_a_documented_loader():
    for name in ("moons", "circles", "gaussians", "digits", "mnist", "fashion-mnist", "cifar10", "cifar100"):
        assert name in DATASETS
    for name in ("svhn", "cifar10n", "cifar10n-worst", "cifar100n", "clothing1m", "imagenet"):
        assert name in DATASETS
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert entry.description
        assert "\n" not in entry.description
        assert entry.loader.__doc__


def test_unknown_name_suggests_near_ones():
    with pytest.raises(UnknownNameError, match="did you mean 'fashion-mnist'"):
        load("fashon-mnist")


def test_find_names_the_missing_file_in_the_closest_folder(tmp_path):
    source = Source(("one", "two"), ("a|a.gz", "b"))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "a.gz").touch()
    with pytest.raises(MissingDataError, match=r"thing: no b in \S*two \(looked in \S*one, \S*two\)"):
        find("thing", source, tmp_path)
    (tmp_path / "two" / "b").touch()
    assert find("thing", source, tmp_path) == tmp_path / "two"


def test_the_root_itself_counts_only_under_the_name_of_a_place(tmp_path):
    source = Source(("Some-Set", "other"), ("a",))
    for name in ("someset", "unrelated"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").touch()
    assert find("x", source, tmp_path / "someset") == tmp_path / "someset"
    with pytest.raises(MissingDataError):
        find("x", source, tmp_path / "unrelated")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn"])
def test_missing_data_says_how_to_get_it(tmp_path, name):
    with pytest.raises(MissingDataError, match=f"noisegate data fetch {name}") as error:
        load(name, root=tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_human_labels_are_placed_by_hand(tmp_path):
    with pytest.raises(MissingDataError, match=r"CIFAR-10_human\.pt") as error:
        load("cifar10n", root=Path(tmp_path))
    assert "data fetch cifar10n" not in str(error.value)
