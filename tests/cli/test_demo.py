"""The demo at a small scale: every file is written, and every number agrees with every other."""

import json
import re

import pytest

import noisegate as ng
from noisegate.cli import demo
from noisegate.errors import InputError

SMALL = demo.Scale(
    epochs=6, moons_epochs=3, moons_points=100, moons_network="mlp-16", resolution=25, pictures=4
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a small demo, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "report"
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr("noisegate.cli.output.say", lambda text="": printed.append(text))
        patch.setattr("noisegate.cli.output.table", lambda rows, header, **more: printed.extend(rows))
        returned = demo.run(out, seed=1, scale=SMALL)
    return out, returned, printed


def test_all_files_are_there(finished):
    out, _, _ = finished
    pictures = {f"{name}.png" for name in ("accuracy", "memorised", "moons", "reliability", "digits")}
    assert {path.name for path in out.iterdir()} == {"report.html", "results.json", *pictures}
    for name in pictures:
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_table_file_and_report_agree(finished):
    out, returned, printed = finished
    stored = json.loads((out / "results.json").read_text())
    assert stored == json.loads(json.dumps(returned))
    rows = [row for row in printed if isinstance(row, list)]
    assert rows == demo.table_rows(stored)
    assert len(rows) == len(demo.DEMO_METHODS)
    report = (out / "report.html").read_text()
    for row in rows:
        cells = (
            re.escape(row[0])
            + "</td>"
            + "".join(f'<td class="number">{re.escape(cell)}</td>' for cell in row[1:])
        )
        assert re.search(cells, report)
    for sentence in demo.findings(stored):
        assert sentence in printed
        assert sentence in report


def test_the_numbers_are_those_of_training_again(finished):
    _, results, _ = finished
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=1)
    wrong = int((data.train.y != data.train.clean).sum())
    assert results["digits"]["n_wrong"] == wrong
    assert wrong / len(data.train) == pytest.approx(0.4, abs=0.04)
    assert results["digits"]["label_sha256"] == ng.noise.label_hash(data.train.y)
    fitted = ng.train(data, "ln", "mlp", ng.Recipe(epochs=6), seed=1, device="cpu")
    again = results["digits"]["methods"]["ln"]
    assert again["accuracy"] == pytest.approx(fitted.metrics["test_accuracy"], abs=0.01)
    assert again["memorised"] == pytest.approx(fitted.metrics["train_memorised"] * wrong, abs=0.02 * wrong)
    curve = results["digits"]["curves"]["ln"]["accuracy"]
    assert len(curve) == 6
    assert curve[-1] == again["accuracy"]


def made_up(curve, memorised):
    end = {"accuracy": curve[-1], "memorised": memorised, "ece": 0.1, "recovered": 0, "seconds": 1.0}
    return end, {"accuracy": curve}


def test_sentences_follow_the_numbers():
    ce, ce_curve = made_up([0.7, 0.92, 0.75], 500)
    ln, ln_curve = made_up([0.6, 0.9, 0.9], 30)
    digits = {"n_wrong": 539, "methods": {"ce": ce, "ln": ln}, "curves": {"ce": ce_curve, "ln": ln_curve}}
    course_ce, course_ln, end = demo.findings({"digits": digits})
    assert "reaches 92.0% in epoch 2, loses 17.0 points" in course_ce
    assert "repeats 500 of the 539 wrong labels" in course_ce
    assert "ends at 90.0%, within a point of its best epoch" in course_ln
    assert end.startswith("At the end Logistic-Normal (ln) is 15.0 percentage points more accurate")
    digits["methods"]["ln"]["accuracy"] = 0.75
    assert demo.findings({"digits": digits})[-1] == "At the end the methods are equally accurate."
    digits["methods"]["ln"]["accuracy"] = 0.5
    assert demo.findings({"digits": digits})[-1].startswith("At the end cross-entropy (ce) is 25.0")


def test_the_best_calibrated_need_not_be_the_most_accurate():
    methods = {"ce": {"ece": 0.05, "accuracy": 0.7}, "ln": {"ece": 0.1, "accuracy": 0.9}}
    text = demo.calibration_sentence({"methods": methods})
    assert text == (
        "The smallest calibration error is that of cross-entropy (ce), 5.0%; the most accurate, "
        "Logistic-Normal (ln), has 10.0%."
    )
    methods["ln"]["ece"] = 0.01
    assert demo.calibration_sentence({"methods": methods}).endswith("it is the most accurate one too.")


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        demo.run(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


def test_the_command_hands_its_options_on(call, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(demo, "run", lambda out, seed: asked.append((out, seed)))
    assert call("demo", "--out", tmp_path, "--seed", "4")[0] == 0
    assert asked == [(tmp_path, 4)]
