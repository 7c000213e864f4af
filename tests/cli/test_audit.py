"""`noisegate audit`: from a file to an audit folder."""

import json

import numpy as np
import pandas as pd
import pytest

import noisegate as ng
from noisegate.auditing import stored

from .conftest import write_images


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=300)
    given = np.where(rng.random(300) < 0.15, 1 - true, true)
    frame = pd.DataFrame({"a": 3 * true + rng.normal(size=300), "b": rng.normal(size=300)})
    frame["kind"] = np.array(["daisy", "rose"])[given]
    frame.to_csv(tmp_path / "flowers.csv", index=False)
    return tmp_path / "flowers.csv", given != true


def test_a_table_is_audited_into_a_folder_that_review_reads(call, table, tmp_path):
    path, wrong = table
    out = tmp_path / "audit"
    code, text, err = call("audit", path, "--label", "kind", "--out", out, "--detector", "neighbours")
    assert code == 0, err
    assert "rows are flagged for a look" in text
    assert f"noisegate review {out}" in text
    report = ng.AuditReport.load(out)
    flagged = report.issues[report.issues.is_label_issue]
    assert wrong[flagged.row].mean() > 0.6
    assert set(report.issues.given_label) == {"daisy", "rose"}
    source = stored.read(out).source
    assert source["kind"] == "table"
    assert source["label"] == "kind"
    assert source["fingerprint"] == stored.fingerprint(path)
    assert (out / "report.html").read_text().startswith("<!")
    assert not (out / "runs").exists()
    code, _, err = call("audit", path, "--label", "kind", "--out", out)
    assert code == 2
    assert "holds an audit already" in err


@pytest.mark.parametrize(("name", "first"), [("a.csv", 2), ("a.tsv.gz", 2), ("a.parquet", 1)])
def test_rows_are_called_as_a_spreadsheet_numbers_them(call, tmp_path, name, first):
    """Also where cells hold line ends."""
    frame = pd.DataFrame({"a": ["two\nlines", "one"] * 40, "kind": ["x", "y"] * 40})
    frame.loc[50, "kind"] = "y"
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    probs = np.where((np.arange(80) % 2)[:, None] == [0, 1], 0.9, 0.1)
    np.save(tmp_path / "p.npy", probs)
    out = tmp_path / "audit"
    code, text, err = call("audit", path, "--label", "kind", "--out", out, "--probs", tmp_path / "p.npy")
    assert code == 0, err
    worst = ng.AuditReport.load(out).issues.iloc[0]
    assert (worst.row, worst.id) == (50, str(50 + first))
    assert "row of the file" in text
    page = (out / "report.html").read_text()
    assert f"Row</span> <bdi>{50 + first}</bdi>" in page
    assert "as a spreadsheet shows them" in page


def test_rows_of_arrays_count_from_0_and_estimates_of_one_run_are_called_low(call, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    x = 2 * y[:, None] + rng.normal(size=(200, 3))
    np.savez(tmp_path / "a.npz", x=x, y=np.where(np.arange(200) % 7 == 0, 1 - y, y))
    out = tmp_path / "audit"
    ask = ("--detector", "in-training", "--network", "linear", "--recipe", "epochs=3")
    code, text, err = call("audit", tmp_path / "a.npz", "--out", out, *ask)
    assert code == 0, err
    issues = ng.AuditReport.load(out).issues
    assert (issues.id == issues.row.astype(str)).all()
    assert "probably more wrong labels than estimated" in text
    assert "probably more wrong labels than estimated" in (out / "report.html").read_text()


@pytest.mark.parametrize("name", ["probs.npy", "probs.csv", "probs.parquet"])
def test_probabilities_from_a_file(call, table, tmp_path, name):
    path, wrong = table
    given = pd.read_csv(path)["kind"].to_numpy()
    rose = np.where((given == "rose") ^ wrong, 0.9, 0.1)
    frame = pd.DataFrame({"row": range(300), "p_rose": rose, "p_daisy": 1 - rose})
    if name.endswith(".npy"):
        np.save(tmp_path / name, frame[["p_daisy", "p_rose"]].to_numpy())
    else:
        getattr(frame, f"to_{name.split('.')[1]}")(tmp_path / name, index=False)
    out = tmp_path / "audit"
    code, _, err = call("audit", path, "--label", "kind", "--out", out, "--probs", tmp_path / name)
    assert code == 0, err
    report = ng.AuditReport.load(out)
    assert set(report.issues.row[report.issues.is_label_issue]) == set(np.flatnonzero(wrong))


def test_probabilities_of_other_classes_are_refused(call, table, tmp_path):
    path, _ = table
    pd.DataFrame({"p_rose": [0.5], "p_tulip": [0.5]}).to_csv(tmp_path / "p.csv", index=False)
    ask = ("audit", path, "--label", "kind", "--out", tmp_path / "audit", "--probs")
    for name, message in (("p.csv", "lacks the columns p_daisy"), ("none.npy", "there is no file")):
        code, _, err = call(*ask, tmp_path / name)
        assert code == 2
        assert message in err


def test_folds_are_trained_and_cleaning_compared(call, table, tmp_path):
    path, _ = table
    quick = [
        "--method",
        "ce",
        "--recipe",
        "epochs=3",
        "--network",
        "mlp-8",
        "--folds",
        "2",
        "--clean",
        "drop",
    ]
    code, _, err = call("audit", path, "--label", "kind", "--out", tmp_path / "audit", *quick)
    assert code == 0, err
    info = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert info["settings"]["method"] == "ce"
    assert info["cleaning"]["how"] == "drop"
    assert 0.4 < info["cleaning"]["accuracy_before"] <= 1


def test_images_carry_their_file_names(call, tmp_path):
    folder = write_images(tmp_path / "pictures")
    code, _, err = call("audit", folder, "--out", tmp_path / "audit", "--detector", "neighbours")
    assert code == 0, err
    audit = stored.read(tmp_path / "audit")
    assert audit.source["kind"] == "folder"
    for name, code_ in zip(audit.rows["id"], audit.rows["given_label"], strict=True):
        assert (folder / name).is_file() or (folder / "train" / name).is_file()
        assert audit.classes[code_] in name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected DATA"),
        (["moons", "--continue", "x"], "leave DATA out"),
        (["--continue", "nowhere"], "there is no audit"),
    ],
)
def test_what_cannot_be_is_refused(call, arguments, message):
    code, _, err = call("audit", *arguments)
    assert code == 2
    assert message in err


def test_a_folder_with_something_else_is_left_alone(call, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = call("audit", "moons", "--out", tmp_path)
    assert code == 2
    assert "is not empty" in err
