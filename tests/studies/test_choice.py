"""A part of a study: what it is, the command that does it, and its reports."""

from pathlib import Path

import pytest

from noisegate import studies
from noisegate.cli.study import names
from noisegate.errors import InputError
from noisegate.studies import Choice


def test_the_command_of_a_choice_is_what_was_typed():
    choice = Choice(scale="smoke", seeds=3, rows=("ce", "ln"), changes={"recipe.epochs": 5}, search=True)
    assert choice.command("demo") == (
        "noisegate study run demo --scale smoke --seeds 3 --rows ce,ln --set recipe.epochs=5 --search"
    )
    assert names(None) == ()
    assert Choice().command("demo", Path("r 2")) == "noisegate study run demo --out 'r 2'"
    assert Choice().command("demo", Path("noisegate-results")) == "noisegate study run demo"
    changed = Choice(changes={"noise.include_self": False, "recipe.epochs": 2})
    assert changed.command("demo").endswith("--set noise.include_self=false --set recipe.epochs=2")


def test_python_does_and_reports_a_part_as_the_command_line_does(tmp_path):
    choice = Choice(scale="smoke", rows=("ce",), columns=("symmetric-40",), seeds=1)
    out = tmp_path / "results"
    results = studies.run("demo", out, choice=choice, workers=1, device="cpu")
    (cell,) = results.study
    assert set(results.values(cell, "test_accuracy")) == {0}
    (report,) = studies.write_reports(out)
    assert report.folder == out / "reports" / "demo-smoke"
    assert (report.missing, report.failed) == ((), 0)
    assert choice.command("demo", out) in (report.folder / "report.md").read_text()
    # One row more joins the same report.
    more = Choice(scale="smoke", rows=("gce",), columns=("symmetric-40",), seeds=1)
    assert more.remember("demo", out).rows == ("ce", "gce")
    (again,) = studies.write_reports(out, "demo", scale="smoke", to=tmp_path / "elsewhere")
    assert again.folder == tmp_path / "elsewhere"
    assert list(dict.fromkeys(e.of.cell.row for e in again.table.entries)) == ["CE", "GCE"]
    with pytest.raises(InputError, match="at another size only"):
        studies.write_reports(out, "demo")


def test_a_folder_that_holds_no_results_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a folder of results"):
        studies.write_reports(tmp_path)
