"""`noisegate data`: list, fetch, corrupt."""

import numpy as np
import pytest

import noisegate as ng


def test_list_has_every_name(call, tmp_path):
    code, out, err = call("data", "list", "--root", tmp_path)
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line.split()}
    assert set(ng.data.DATASETS) <= set(lines)
    assert " yes " in lines["digits"]
    assert " no " in lines["cifar10"]
    assert "noisegate data fetch cifar10" in lines["cifar10"]


def test_fetch_says_what_it_cannot(fails, tmp_path):
    assert "needs no download" in fails("data", "fetch", "digits", "--root", tmp_path)
    assert "did you mean" in fails("data", "fetch", "cifar", "--root", tmp_path)
    assert "cannot be fetched" in fails("data", "fetch", "imagenet", "--root", tmp_path)


def test_fetch_hands_its_options_on(call, monkeypatch, tmp_path):
    asked = {}

    def fetch(name, root, **options):
        asked.update(options, name=name, root=root)
        return root / name

    monkeypatch.setattr("noisegate.data.download.fetch", fetch)
    code, out, _ = call("data", "fetch", "mnist", "--root", tmp_path, "--mirror", "http://m", "--replace")
    assert code == 0
    assert f"mnist is in {tmp_path / 'mnist'}" in out
    progress = asked.pop("progress")
    assert progress is None  # nobody is watching
    expected = {"name": "mnist", "root": tmp_path, "base_url": "http://m", "optional": False, "replace": True}
    assert asked == expected


def test_corrupt_writes_what_it_prints(call, tmp_path):
    path = tmp_path / "labels.txt"
    code, out, err = call(
        *("data", "corrupt", "digits", "--noise", "symmetric", "--rate", "0.4", "--exclude-self"),
        *("--seed", "3", "--out", path),
    )
    assert (code, err) == (0, "")
    data = ng.data.load("digits")
    noise = ng.noise.Symmetric(0.4, include_self=False)
    expected = noise.corrupt(data.train.y, n_classes=10, seed=3)
    stored = ng.noise.load_labels(path, expect_length=len(data.train))
    np.testing.assert_array_equal(stored.observed, expected)
    np.testing.assert_array_equal(stored.clean, data.train.y)
    assert stored.noise == noise.to_dict()
    assert stored.seed == 3
    report = ng.noise.describe(data.train.y, expected, 10)
    assert f"({report.rate:.2%})" in out
    assert stored.sha256 in out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["7"])
    np.testing.assert_allclose([float(cell) for cell in row[1:]], report.transition[7], atol=5e-4)


@pytest.mark.parametrize(
    ("options", "noise"),
    [
        (["asymmetric", "--rate", "0.3", "--mapping", "mnist"], ng.noise.Asymmetric(0.3, "mnist")),
        (["asymmetric", "--rate", "1", "--mapping", '{"0": 1}'], ng.noise.Asymmetric(1.0, {0: 1})),
        (["class-dependent", "--level", "increased"], ng.noise.ClassDependent("increased")),
        (["class-dependent", "--level", str([0.1] * 10)], ng.noise.ClassDependent([0.1] * 10)),
        (["instance-dependent", "--rate", "0.3", "--std", "0"], ng.noise.InstanceDependent(0.3, std=0.0)),
    ],
)
def test_every_noise_can_be_asked_for(call, tmp_path, options, noise):
    assert call("data", "corrupt", "digits", "--noise", *options, "--out", tmp_path / "l")[0] == 0
    assert ng.noise.build(ng.noise.load_labels(tmp_path / "l").noise) == noise


def test_a_matrix_from_a_file(call, fails, tmp_path):
    arguments = ("data", "corrupt", "moons", "--noise", "transition", "--out", tmp_path / "l", "--matrix")
    (tmp_path / "t.csv").write_text("0,1\n1,0\n")
    assert call(*arguments, tmp_path / "t.csv")[0] == 0
    stored = ng.noise.load_labels(tmp_path / "l")
    np.testing.assert_array_equal(stored.observed, 1 - stored.clean)
    (tmp_path / "t.csv").write_text("0,half\n1,0\n")
    assert "not a table of numbers" in fails(*arguments, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("0.5,0.6\n1,0\n")
    assert "sum to one" in fails(*arguments, tmp_path / "t.csv")
    assert "there is no file" in fails(*arguments, tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["symetric", "--rate", "0.2"], "did you mean 'symmetric'"),
        (["symmetric"], "symmetric noise needs --rate"),
        (["asymmetric"], "asymmetric noise needs --rate and --mapping"),
        (
            ["symmetric", "--rate", "0.2", "--std", "1"],
            "does not take --std; it takes --rate, --exclude-self",
        ),
        (["symmetric", "--rate", "1.2"], "[0, 1]"),
        (["asymmetric", "--rate", "0.2", "--mapping", "cifar100"], "is for 100 classes, not 10"),
        (["human"], "read, not drawn"),
    ],
)
def test_mistakes_are_named(fails, tmp_path, options, words):
    assert words in fails("data", "corrupt", "digits", "--noise", *options, "--out", tmp_path / "l")
    assert not (tmp_path / "l").exists()


def test_the_file_fits_the_data_whatever_the_seed(call, tmp_path):
    corrupt = ("data", "corrupt", "moons", "--noise", "symmetric", "--rate", "0.2", "--seed", "5")
    assert call(*corrupt, "--out", tmp_path / "l")[0] == 0
    code, _, err = call(
        *("fit", "moons", "--labels", tmp_path / "l", "--seed", "9", "--out", tmp_path / "m"),
        *("--recipe", "epochs=1", "--network", "linear"),
    )
    assert (code, err) == (0, "")
