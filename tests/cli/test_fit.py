"""`noisegate fit`: what it refuses, what it writes, how it goes on."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import noisegate as ng
from noisegate.cli.fit import FAILED, check_out
from noisegate.errors import InputError

from .conftest import QUICK, flowers, write_images


def test_it_says_what_was_done(call, table, tmp_path):
    other = tmp_path / "other.csv"
    flowers(seed=1).to_csv(other, index=False)
    code, out, err = call(
        *("fit", table, "--label", "species", "--out", tmp_path / "m", "--test", other, *QUICK),
        *("--param", "temperature=0.5"),
    )
    assert (code, err) == (0, "")
    for words in (
        "120 training rows, 120 test",
        "2: daisy, rose",
        "ln (temperature=0.5)",
        "15 epochs",
        str(tmp_path / "m"),
    ):
        assert words in out
    fitted = ng.Fitted.load(tmp_path / "m")
    assert f"{fitted.metrics['test_accuracy']:.2%}" in out
    assert fitted.metrics["test_accuracy"] > 0.95
    assert fitted.objective.temperature == 0.5
    assert fitted.record["identity"]["recipe"]["epochs"] == 15


def test_a_table_of_numbers_is_fitted_without_pandas_and_scikit_learn(tmp_path):
    # Importing them takes as much CPU time as torch does.
    code = (
        "import sys; from noisegate.cli import main; code = main(sys.argv[1:]); "
        "print(code, *(name for name in ('pandas', 'scipy', 'sklearn') if name in sys.modules))"
    )
    table = tmp_path / "t.csv"
    flowers()[["length", "width", "species"]].to_csv(table, index=False)
    done = subprocess.run(
        [sys.executable, "-c", code, "fit", table, "--label", "species", "--out", tmp_path / "m", *QUICK],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.splitlines()[-1] == "0", done.stdout + done.stderr


def test_it_says_what_became_of_the_rows_and_columns(call, tmp_path):
    frame = pd.concat([flowers(seed=seed) for seed in range(4)], ignore_index=True)
    frame["free"] = [f"text-{n // 2}" for n in range(len(frame))]
    frame["fixed"] = 1
    frame.to_csv(tmp_path / "t.csv", index=False)
    code, out, err = call(
        "fit",
        tmp_path / "t.csv",
        "--label",
        "species",
        "--out",
        tmp_path / "m",
        *QUICK,
        "--recipe",
        "keep=best",
    )
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "432 training rows, 48 validation" in words  # a tenth is held out
    assert "fixed left out 0 constant" in words
    assert "free category (100 values) 100 140 rarer values have no input" in words
    fitted = ng.Fitted.load(tmp_path / "m")
    data = ng.data.load(tmp_path / "t.csv", label="species")
    same = np.mean(fitted.predict(data.train.x) == np.asarray(data.label_values)[data.train.y])
    assert f"the classifier repeats {same:.2%} of 480 (near chance" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "lnn"], "unknown method 'lnn'; did you mean 'ln'"),
        (["--method", "ln", "--param", "temprature=1"], "did you mean 'temperature'"),
        (["--method", "ln", "--param", "temperature=hot"], "--param temperature expects a number"),
        (["--recipe", "epoch=3"], "did you mean 'epochs'"),
        (["--recipe", "epochs=0"], "epochs must be"),
        (["--recipe", "betas=0.9"], "--recipe betas expects a list"),
        (["--recipe", "epochs"], "KEY=VALUE"),
        (["--network", "mpl"], "did you mean 'mlp'"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--option", "colour=red"], "no option 'colour'"),
        (["--test", "nowhere.csv"], "there is no file"),
        (["--labels", "nowhere.txt"], "there is no file"),
    ],
)
def test_mistakes_are_named(fails, table, tmp_path, options, words):
    assert words in fails("fit", table, "--label", "species", "--out", tmp_path / "m", *options)
    assert not (tmp_path / "m").exists()


def test_a_table_without_a_label_lists_its_columns(fails, table, tmp_path):
    line = fails("fit", table, "--out", tmp_path / "m")
    assert "--label COL" in line
    assert "length, width, place, species" in line
    assert "did you mean 'species'" in fails("fit", table, "--label", "specis", "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("a,y\n", "has no rows"),
        ("a,y\n1,x\n2,x\n", "at least two classes"),
        ("a,y\n1,x\ninf,z\n3,x\n", "has inf in row 3"),
        ("a,y\n1,x\n2,\n3,z\n", "1 of 3 labels in 'y' are missing"),
        ("a,y\n1,0.5\n2,0.25\n3,1.5\n", "fractions such as 0.5"),
        ("a,y\n1,2,3\n4,5,6,7\n", "line 3 has 4 values, and the header 3 names"),
    ],
)
def test_tables_nothing_can_be_learnt_from(fails, tmp_path, content, words):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert words in fails("fit", path, "--label", "y", "--out", tmp_path / "m")


def test_places_that_are_not_what_they_should_be(fails, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    fails("fit", tmp_path / "folder.csv", "--label", "y", "--out", tmp_path / "m")
    assert "there is no file or folder" in fails("fit", tmp_path / "none", "--out", tmp_path / "m")
    (tmp_path / "notes.txt").write_text("x")
    assert "not a format" in fails("fit", tmp_path / "notes.txt", "--out", tmp_path / "m")
    assert "did you mean 'digits'" in fails("fit", "digit", "--out", tmp_path / "m")
    bad = tmp_path / "bad.npz"
    np.savez(bad, x=np.array([[0.0, 1.0], [np.nan, 2.0]]), y=[0, 1])
    assert "row 1 has NaN or infinity" in fails("fit", bad, "--out", tmp_path / "m")


def test_only_a_model_is_replaced(fails, call, table, tmp_path):
    arguments = ("fit", table, "--label", "species", "--recipe", "epochs=1", "--network", "linear")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    assert "chapter.tex" in fails(*arguments, "--out", tmp_path / "thesis")
    assert "is a file" in fails(*arguments, "--out", table)
    assert "two folders" in fails(*arguments, "--out", tmp_path / "m", "--checkpoint", tmp_path / "m")
    for seed in (0, 1):
        code, out, errors = call(*arguments, "--out", tmp_path / "m", "--seed", seed)
        assert code in (0, FAILED), errors
        assert ("in place of the one that was there" in out) == (seed == 1)
        stored = json.loads((tmp_path / "m" / "model.json").read_text())
        assert stored["record"]["identity"]["seed"] == seed
    assert len(list((tmp_path / "m").glob("weights-*"))) == 1


def test_a_killed_fit_goes_on(call, monkeypatch, table, tmp_path):
    from noisegate.training import trainer

    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    whole = trainer.PhaseRun.run_chunks
    seen = []

    def run_chunks(self):
        if len(seen) == 5:
            seen.append("killed")
            raise KeyboardInterrupt
        seen.append(self.epoch)
        return whole(self)

    monkeypatch.setattr(trainer.PhaseRun, "run_chunks", run_chunks)
    arguments = ("fit", table, "--label", "species", *QUICK, "--out")
    resumed = (*arguments, tmp_path / "a", "--checkpoint", tmp_path / "c")
    assert call(*resumed)[0] == 130
    assert not (tmp_path / "a").exists()
    assert call(*resumed)[0] == 0
    assert seen == [0, 1, 2, 3, 4, "killed", *range(5, 15)]
    assert call(*arguments, tmp_path / "b")[0] == 0
    a, b = (json.loads((tmp_path / name / "model.json").read_text()) for name in "ab")
    assert a["weights"] == b["weights"]


def test_a_run_on_two_processes_writes_the_model_of_one(call, table, tmp_path):
    arguments = ("fit", table, "--label", "species", *QUICK, "--method", "ce", "--out")
    code, _, err = call(*arguments, tmp_path / "two", "--devices", 2)
    assert (code, err) == (0, "")
    assert call(*arguments, tmp_path / "one")[0] == 0
    one, two = (ng.Fitted.load(tmp_path / name) for name in ("one", "two"))
    assert two.record["processes"] == 2
    assert two.history[0][-1]["loss"] == pytest.approx(one.history[0][-1]["loss"], rel=1e-4)
    for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True):
        np.testing.assert_allclose(b.detach(), a.detach(), rtol=1e-3, atol=1e-5)


def test_what_one_of_two_processes_refuses_is_the_error(fails, table, tmp_path):
    arguments = ("fit", table, "--label", "species", "--out", tmp_path / "m", "--device", "cpu")
    line = fails(*arguments, "--devices", 2, "--method", "ln", "--recipe", "batch_size=15")
    assert "a batch of 15 rows cannot be split evenly over 2 processes" in line
    assert not (tmp_path / "m").exists()


def test_torchrun_and_devices_exclude_each_other(fails, monkeypatch, table, tmp_path):
    for name, value in {
        "RANK": 0,
        "LOCAL_RANK": 0,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "x",
        "MASTER_PORT": 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    line = fails("fit", table, "--label", "species", "--out", tmp_path / "m", "--devices", 2)
    assert "leave --devices out" in line


def test_test_labels_must_be_known(fails, table, tmp_path):
    frame = flowers(seed=2)
    frame.loc[3, "species"] = "tulip"
    frame.to_csv(tmp_path / "test.csv", index=False)
    line = fails("fit", table, "--label", "species", "--out", tmp_path / "m", "--test", tmp_path / "test.csv")
    assert "'tulip'" in line


def test_test_labels_are_numbered_as_in_training(call, tmp_path):
    write_images(tmp_path / "train")
    # The other way round by name: numbering by the order of the test folder would swap the classes.
    write_images(tmp_path / "train", n=6, names=("black", "white"), seed=2)
    write_images(tmp_path / "test", n=5, names=("dark", "white"), seed=1)
    code, out, _ = call(
        *("fit", tmp_path / "train", "--out", tmp_path / "m", "--test", tmp_path / "test", "--method", "ce"),
        *("--recipe", "epochs=1", "--network", "linear", "--device", "cpu"),
    )
    assert code == 0
    assert "4: black, dark, light, white" in out
    fitted = ng.Fitted.load(tmp_path / "m")
    x = ng.data.load(tmp_path / "test").train
    said = fitted.predict(x.x)
    right = np.mean(said == np.array(["dark", "white"])[x.y])
    assert fitted.metrics["test_accuracy"] == pytest.approx(right)


def test_labels_of_a_file_replace_those_of_the_data(call, fails, table, tmp_path):
    labels = tmp_path / "labels.txt"
    corrupt = (
        "data",
        "corrupt",
        table,
        "--label",
        "species",
        "--noise",
        "symmetric",
        "--rate",
        "0.4",
        "--exclude-self",
    )
    assert call(*corrupt, "--out", labels)[0] == 0
    stored = ng.noise.load_labels(labels)
    wrong = int((stored.observed != stored.clean).sum())
    assert wrong > 20
    arguments = ("fit", table, "--label", "species", "--out", tmp_path / "m", *QUICK)
    code, out, _ = call(*arguments, "--labels", labels)
    assert code in (0, FAILED)
    assert f"{wrong} of 120" in out
    fitted = ng.Fitted.load(tmp_path / "m")
    expected = ng.data.load(table, label="species").with_labels(stored.observed)
    from noisegate.runs.identity import fingerprint

    assert fitted.record["identity"]["data"]["train"] == fingerprint(expected.train)
    assert "train_memorised" in fitted.metrics

    flowers().iloc[::-1].to_csv(table, index=False)
    assert "its order did" in fails(*arguments, "--labels", labels)
    flowers(100).to_csv(table, index=False)
    assert "has 120 labels, expected 100" in fails(*arguments, "--labels", labels)
    renamed = flowers()
    renamed["species"] = renamed["species"].str.upper()
    renamed.to_csv(table, index=False)
    assert "is for the classes daisy, rose" in fails(*arguments, "--labels", labels)


def test_a_save_that_was_killed_is_made_good_by_the_next(tmp_path):
    for name in (".lock", ".weights.safetensors", "weights-0123.safetensors", ".model.json.abc.part"):
        (tmp_path / name).write_bytes(b"half")
    check_out(tmp_path)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"holds no model \(there is thesis.tex\)"):
        check_out(tmp_path)


def test_a_fit_that_comes_to_nothing_has_an_exit_code(call, tmp_path, caplog):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", x=np.zeros((60, 3)), y=rng.integers(0, 2, 60))
    code, out, _ = call("fit", tmp_path / "t.npz", "--out", tmp_path / "m", *QUICK)
    assert code == FAILED == 3
    assert "failed to learn" in caplog.text
    assert str(tmp_path / "m") in out
    assert (tmp_path / "m" / "model.json").exists()
