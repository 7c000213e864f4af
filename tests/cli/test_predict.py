"""`noisegate predict`: round trips through every kind of file."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import noisegate as ng
from noisegate._io.models import with_checksum

from .conftest import QUICK, flowers, write_images


def read(text):
    return pd.read_csv(io.StringIO(text))


def check_probabilities(frame, classes):
    probs = frame[[f"p_{name}" for name in classes]].to_numpy()
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-4)
    assert list(frame["label"]) == [classes[k] for k in probs.argmax(axis=1)]


def test_a_table_with_gaps_categories_and_text_labels(call, fitted_table, tmp_path):
    new = flowers(50, seed=3)
    truth = new.pop("species")
    new.loc[0, "place"] = "moon"  # a category that training did not have
    new.to_csv(tmp_path / "new.csv", index=False)
    code, out, err = call("predict", fitted_table, tmp_path / "new.csv")
    assert code == 0
    assert err.count("\n") == 1
    assert "1 value of place not seen in training (such as 'moon')" in err
    frame = read(out)
    assert list(frame.columns) == ["row", "label", "p_daisy", "p_rose"]
    assert list(frame["row"]) == list(range(2, 52))  # as in the file, whose row 1 is the header
    check_probabilities(frame, ["daisy", "rose"])
    assert (frame["label"] == truth).mean() > 0.95


def test_csv_and_parquet_say_the_same_as_python(call, fitted_table, tmp_path, table):
    for suffix in ("csv", "parquet"):
        code, out, _ = call("predict", fitted_table, table, "--out", tmp_path / f"p.{suffix}")
        assert code == 0
        assert f"120 rows written to {tmp_path / 'p'}.{suffix}" in out
    parquet = pd.read_parquet(tmp_path / "p.parquet")
    stored = json.loads((fitted_table / "model.json").read_text())
    x = ng.data.reader_from_dict(stored["reader"]).read(table)
    probs = ng.Fitted.load(fitted_table).predict_proba(x)
    np.testing.assert_allclose(parquet[["p_daisy", "p_rose"]].to_numpy(), probs, rtol=1e-12)
    csv = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(csv[["p_daisy", "p_rose"]], probs, rtol=1e-5)
    assert list(csv["label"]) == list(parquet["label"])


def test_parquet_in_and_whole_numbers_as_labels(call, tmp_path):
    frame = flowers()
    frame["species"] = np.where(frame["species"] == "rose", 7, 3)
    frame.to_parquet(tmp_path / "t.parquet")
    assert call("fit", tmp_path / "t.parquet", "--label", "species", "--out", tmp_path / "m", *QUICK)[0] == 0
    assert call("predict", tmp_path / "m", tmp_path / "t.parquet", "--out", tmp_path / "p.parquet")[0] == 0
    predicted = pd.read_parquet(tmp_path / "p.parquet")
    assert predicted["label"].dtype == np.int64
    check_probabilities(predicted, [3, 7])
    assert (predicted["label"] == frame["species"]).mean() > 0.95


def test_npz(call, fails, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=80).astype(bool)
    x = rng.normal(y[:, None] * 3.0, 0.5, (80, 4))
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.save(tmp_path / "new.npy", x[:10])
    assert call("fit", tmp_path / "a.npz", "--out", tmp_path / "m", *QUICK)[0] == 0
    code, out, _ = call("predict", tmp_path / "m", tmp_path / "new.npy")
    assert code == 0
    frame = read(out)
    assert frame["label"].dtype == bool
    assert list(frame["label"]) == list(y[:10])
    check_probabilities(frame, [False, True])
    np.savez(tmp_path / "narrow.npz", x=x[:, :3])
    assert "expected rows of shape (4,), got (3,)" in fails(
        "predict", tmp_path / "m", tmp_path / "narrow.npz"
    )


def test_an_image_folder(call, fails, tmp_path):
    folder = write_images(tmp_path / "images")
    code, out, _ = call("fit", folder, "--out", tmp_path / "m", *QUICK)
    assert code == 0
    assert "24 training rows" in out
    assert "1 x 8 x 8" in out
    code, out, _ = call("predict", tmp_path / "m", folder)
    assert code == 0
    frame = read(out)
    assert list(frame.columns) == ["file", "label", "p_dark", "p_light"]
    assert frame["file"].iloc[0] == "dark/00.png"
    assert [name.split("/")[0] for name in frame["file"]] == list(frame["label"])
    single = read(call("predict", tmp_path / "m", folder / "light" / "03.png")[1])
    row = frame[frame["file"] == "light/03.png"].reset_index(drop=True)
    pd.testing.assert_frame_equal(single.drop(columns="file"), row.drop(columns="file"), rtol=1e-4, atol=1e-6)
    (tmp_path / "empty").mkdir()
    assert "no images" in fails("predict", tmp_path / "m", tmp_path / "empty")
    (folder / "light" / "03.png").write_bytes(b"not a picture")
    assert "cannot be read as an image" in fails("predict", tmp_path / "m", folder)


def test_a_named_data_set_means_its_test_rows(call, tmp_path):
    code, _, err = call(
        "fit", "digits", "--out", tmp_path / "m", "--network", "linear", "--recipe", "epochs=20"
    )
    assert (code, err) == (0, "")
    frame = read(call("predict", tmp_path / "m", "digits")[1])
    data = ng.data.load("digits")
    accuracy = (frame["label"].to_numpy() == data.test.y).mean()
    assert accuracy == pytest.approx(ng.Fitted.load(tmp_path / "m").metrics["test_accuracy"], abs=0.005)


def test_places_that_are_no_model(fails, table, tmp_path):
    assert "is not a model folder" in fails("predict", tmp_path, table)
    assert "is not a model folder" in fails("predict", tmp_path / "none", table)
    assert "is not a model folder" in fails("predict", table, table)


def test_damaged_models(fails, fitted_table, table):
    description = fitted_table / "model.json"
    whole = description.read_text()
    for content, words in [
        (whole[:100], "not readable JSON"),
        ("[]", "does not describe"),
        (json.dumps({"format": 1}), "lacks"),
        (json.dumps({**json.loads(whole), "format": 99}), "has format 99"),
        (
            json.dumps(with_checksum({**json.loads(whole), "reader": {"kind": "oracle"}})),
            "unknown kind of reader",
        ),
        (json.dumps({**json.loads(whole), "reader": None}), "does not have its checksum"),
        (json.dumps(with_checksum({**json.loads(whole), "reader": None})), "was not fitted from files"),
    ]:
        description.write_text(content)
        assert words in fails("predict", fitted_table, table)
    description.write_text(whole)
    weights = next(fitted_table.glob("weights-*"))
    weights.write_bytes(weights.read_bytes()[:200])
    assert "damaged" in fails("predict", fitted_table, table)


def test_tables_that_do_not_fit(fails, fitted_table, tmp_path):
    frame = flowers(20).drop(columns=["width", "species"])
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert "lacks 1 of the 3 columns" in fails("predict", fitted_table, tmp_path / "new.csv")
    frame["width"] = "wide"
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert "row 2 has 'wide'" in fails("predict", fitted_table, tmp_path / "new.csv")
    assert "found a folder" in fails("predict", fitted_table, tmp_path)
    assert "there is no file" in fails("predict", fitted_table, tmp_path / "none.csv")


def test_what_cannot_be_written_is_refused_first(fails, fitted_table, table, tmp_path):
    assert "must end in .csv or .parquet" in fails(
        "predict", fitted_table, table, "--out", tmp_path / "p.xlsx"
    )
    (tmp_path / "p.csv").mkdir()
    assert "is a folder" in fails("predict", fitted_table, table, "--out", tmp_path / "p.csv")


def test_a_model_of_arrays_says_that_it_reads_arrays(call, fails, tmp_path):
    np.savez(tmp_path / "t.npz", x=np.random.default_rng(0).normal(size=(40, 2)), y=np.arange(40) % 2)
    code, _, errors = call("fit", tmp_path / "t.npz", "--out", tmp_path / "m", "--recipe", "epochs=1")
    assert code == 0, errors
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    said = fails("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert "expected an .npz or .npy file of arrays" in said


def test_the_name_of_a_dataset_is_one_for_fit_and_predict(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moons").mkdir()
    assert call("fit", "moons", "--out", "m", "--recipe", "epochs=1", "--device", "cpu")[0] == 0
    code, _, errors = call("predict", "m", "moons", "--out", "p.csv")
    assert code == 0, errors


def test_what_training_did_not_have_is_counted_in_one_line(call, fails, fitted_table, tmp_path):
    new = (
        flowers(30, seed=3).drop(columns="species").assign(key=[f"k{n:02d}" for n in range(30)], colour="red")
    )
    new.loc[[4, 7], "width"] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    code, out, err = call("predict", fitted_table, tmp_path / "new.csv", "--id", "key")
    assert code == 0
    assert err.count("\n") == 1
    assert "2 gaps in width, which had none in training; 1 column not used by the model (colour)" in err
    frame = read(out)
    assert list(frame.columns[:3]) == ["row", "key", "label"]
    assert list(frame["key"]) == list(new["key"])
    assert "has no column 'kye'; did you mean 'key'" in fails(
        "predict", fitted_table, tmp_path / "new.csv", "--id", "kye"
    )


def test_an_id_of_another_name_than_the_predictions(fails, fitted_table, tmp_path):
    flowers(5).assign(label=1).to_csv(tmp_path / "new.csv", index=False)
    assert "--id label: the predictions have a column of that name" in fails(
        "predict", fitted_table, tmp_path / "new.csv", "--id", "label"
    )
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))


def test_a_model_made_in_python_reads_files(call, table, tmp_path):
    frame = pd.read_csv(table)
    clf = ng.NoisyLabelClassifier("ce", recipe={"epochs": 5}, network="mlp-16", random_state=0, device="cpu")
    clf.fit(frame.drop(columns="species"), frame["species"]).save(tmp_path / "m")
    code, out, err = call("predict", tmp_path / "m", table)
    assert code == 0
    assert "1 column not used by the model (species)" in err
    probs = clf.predict_proba(frame.drop(columns="species"))
    np.testing.assert_allclose(read(out)[["p_daisy", "p_rose"]], probs, rtol=1e-4)


def test_models_with_texts_and_dates_go_both_ways(call, tmp_path):
    n, rng = 60, np.random.default_rng(0)
    y = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "id": [f"k{i:03d}" for i in rng.permutation(n)],
            "review": [f"{'good lovely' if k else 'bad dull'} film of {i} days" for i, k in enumerate(y)],
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "star": pd.Categorical(rng.choice([0.5, 1.0, 2.0], n)),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, y),
            "seen": rng.random(n) < 0.5,
            "y": y,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    settings = ["--method", "ce", "--network", "mlp-8", "--recipe", "epochs=3", "--device", "cpu"]
    code, _, err = call("fit", tmp_path / "t.csv", "--label", "y", "--out", tmp_path / "shell", *settings)
    assert (code, err) == (0, "")
    read_back = pd.read_csv(tmp_path / "t.csv")
    clf = ng.NoisyLabelClassifier.load(tmp_path / "shell")
    assert (clf.method, clf.network, clf.classes_.tolist()) == ("ce", "mlp-8", [0, 1])
    assert clf.n_features_in_ == 6
    python = ng.NoisyLabelClassifier("ce", "mlp-8", {"epochs": 3}, "cpu", 0)
    with pytest.warns(UserWarning, match=r"not used: 'id' \(names the rows"):
        python.fit(frame.drop(columns="y"), frame["y"])
    python.save(tmp_path / "python")
    # The label and columns that are not used may be there or not.
    for table in (frame, read_back, read_back.drop(columns=["y", "id"]).iloc[:, ::-1]):
        shell = read(call("predict", tmp_path / "shell", tmp_path / "t.csv")[1])
        np.testing.assert_allclose(clf.predict_proba(table), shell[["p_0", "p_1"]], rtol=1e-4)
    shell = read(call("predict", tmp_path / "python", tmp_path / "t.csv")[1])
    np.testing.assert_allclose(
        python.predict_proba(frame.drop(columns="y")), shell[["p_0", "p_1"]], rtol=1e-4
    )


def test_a_small_table_is_predicted_without_slow_imports(fitted_table, table, tmp_path):
    # Importing torch takes a second or more of CPU, pandas a third of one.
    code = (
        "import sys; from noisegate.cli import main; code = main(sys.argv[1:]); "
        "print(code, *(name for name in ('torch', 'pandas', 'scipy', 'sklearn', 'rich') if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "predict", fitted_table, table, "--out", tmp_path / "p.csv"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.splitlines()[-1] == "0", done.stdout + done.stderr
    assert len(pd.read_csv(tmp_path / "p.csv")) == 120


def test_large_tables_and_other_devices_go_through_torch(call, fitted_table, table, tmp_path, monkeypatch):
    few = read(call("predict", fitted_table, table)[1])
    monkeypatch.setattr("noisegate.without_torch.MOST_ROWS", 10)
    many = read(call("predict", fitted_table, table, "--device", "cpu")[1])
    pd.testing.assert_frame_equal(few, many, rtol=1e-5)


def test_ids_keep_their_kind_and_their_text(call, fitted_table, tmp_path):
    new = flowers(6, seed=3).drop(columns="species")
    new["day"] = pd.date_range("2026-11-18", periods=6)
    new["whole"] = pd.array([1, None, 3, 4, 5, 2**60 + 1], dtype="Int64")
    new["code"] = ["001", None, 'a "quoted", one', "NA", "é", "1.10"]
    new.to_parquet(tmp_path / "new.parquet")
    ids = [word for name in ("day", "whole", "code") for word in ("--id", name)]
    assert (
        call("predict", fitted_table, tmp_path / "new.parquet", *ids, "--out", tmp_path / "p.parquet")[0] == 0
    )
    stored = pd.read_parquet(tmp_path / "p.parquet", dtype_backend="numpy_nullable")
    assert list(stored["whole"]) == list(new["whole"])
    assert list(stored["day"]) == list(new["day"])
    assert call("predict", fitted_table, tmp_path / "new.parquet", *ids, "--out", tmp_path / "p.csv")[0] == 0
    written = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert list(written["whole"]) == ["1", "", "3", "4", "5", str(2**60 + 1)]
    assert list(written["code"]) == ["001", "", 'a "quoted", one', "NA", "é", "1.10"]
    assert written["day"][0].startswith("2026-11-18")
