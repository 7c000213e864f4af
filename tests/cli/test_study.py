"""`noisegate study`: run, again, report, and everything that can be typed wrong."""

import json
import signal
import subprocess
import sys
import time

import pytest

from noisegate.studies import papers
from noisegate.studies.store import Store

SMALL = [
    "--scale",
    "smoke",
    "--seeds",
    "1",
    "--rows",
    "ce,ln",
    "--columns",
    "symmetric-40",
    "--device",
    "cpu",
]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def run(call, out):
    def run(*arguments):
        return call("study", "run", "demo", *SMALL, "--workers", "1", "--out", out, *arguments)

    return run


def finished(out):
    return {r.key: (out / "runs" / r.key / "result.json").stat().st_mtime_ns for r in Store(out).results()}


def test_the_list_has_every_study(call):
    code, output, _ = call("study", "list")
    assert code == 0
    for name in papers.studies():
        assert f" {name} " in output


def test_a_study_ends_in_a_table_and_a_report(run, out):
    code, output, errors = run()
    assert code == 0, errors
    assert "2 of 2 runs done" in output
    # No number of a smoke run can be taken for a result.
    assert "LN" not in output
    assert "smoke size, on digits: it shows that everything runs, and is no reproduction" in output
    assert len(errors.splitlines()) == 2
    folder = out / "reports" / "demo-smoke"
    for name in ("report.md", "report.html", "table.csv", "runs.csv", "choice.json"):
        assert (folder / name).stat().st_size > 0
    assert "LN" in (folder / "report.md").read_text()


def test_the_same_command_repeats_nothing(run, out):
    run()
    before = finished(out)
    code, output, errors = run()
    assert (code, errors) == (0, "")
    assert finished(out) == before
    assert "2 of 2 runs done" in output


def test_a_dry_run_runs_nothing_and_estimates(run, out):
    code, output, _ = run("--dry-run")
    assert code == 0
    assert "2 runs, 0 done, 0 failed, 0 running in other processes, 2 to do" in output
    assert "time is not known" in output
    assert finished(out) == {}
    run()
    code, output, _ = run("--seeds", "3", "--dry-run")
    assert "6 runs, 2 done" in output
    assert "for 4 of them, 1 at a time, by those done" in output


def test_a_dry_run_of_a_search_says_that_there_is_more(call, out):
    code, output, _ = call(
        "study",
        "run",
        "ln-table1-mnist",
        "--search",
        "--rows",
        "ln",
        "--columns",
        "symmetric-40",
        "--dry-run",
        "--out",
        out,
    )
    assert code == 0
    assert "9 runs" in output
    assert "and 4 more once the search of 1 cells is over" in output


def test_a_report_is_redrawn_without_training(run, call, out, monkeypatch):
    run()
    page = out / "reports" / "demo-smoke" / "report.html"
    before = page.read_text()
    page.unlink()
    monkeypatch.setattr("noisegate.runs.run.Run.__init__", None)
    code, _, errors = call("study", "report", "demo", "--scale", "smoke", "--out", out)
    assert code == 0, errors
    assert page.read_text() == before
    page.unlink()
    assert call("study", "report", "--out", out)[0] == 0
    assert page.read_text() == before
    assert call("study", "report", "demo", "--scale", "smoke", "--out", out, "--to", out / "x")[0] == 0
    assert (out / "x" / "report.html").exists()


def test_changes_are_told_in_the_report(run, out):
    code, output, errors = run("--set", "recipe.epochs=1")
    assert code == 0, errors
    assert "demo with recipe.epochs = 1:" in output
    (page,) = out.glob("reports/demo-smoke-set-recipe.epochs-1-*/report.md")
    assert "recipe.epochs" in page.read_text()


def test_damaged_results_are_named_and_done_again(run, out):
    run()
    key = next(iter(finished(out)))
    path = out / "runs" / key / "result.json"
    path.write_text("{")
    code, _, errors = run()
    assert code == 0
    assert str(path) in errors
    assert "renamed" in errors
    assert json.loads(path.read_text())["key"] == key


def test_failed_runs_are_told_and_left_alone(run, out):
    diverging = ("--set", "recipe.lr=1e30", "--set", "recipe.optimizer=sgd")
    code, output, errors = run(*diverging)
    assert code == 2
    assert "diverged: training diverged" in output
    assert "2 failed; the same command with --retry tries them again" in output
    assert errors.splitlines()[-1] == (
        "noisegate: error: no run of demo has finished, so there is nothing to report"
    )
    assert len(run(*diverging)[2].splitlines()) == 1
    assert "diverged" in run(*diverging, "--retry")[2]


def test_a_report_tells_the_failures(run, call, out):
    run()
    key = next(iter(finished(out)))
    (out / "runs" / key / "result.json").unlink()
    (out / "runs" / key / "failed.json").write_text('{"status": "crashed", "error": "KeyError: 7"}')
    code, output, errors = run()
    assert code == 4
    assert "1 of 2 runs done" in output
    assert "crashed: KeyError: 7" in output
    assert errors.splitlines()[-1] == (
        f"noisegate: 1 of 2 runs of demo crashed, so the study is not finished; {out / 'runs'}/*/failed.json "
        "has what happened, and the same command with --retry tries again"
    )
    assert "KeyError: 7" in (out / "reports" / "demo-smoke" / "report.md").read_text()
    code, output, errors = run("--retry")
    assert code == 0, errors
    assert "2 of 2 runs done" in output


def test_a_study_of_which_every_run_crashes_is_not_finished(run, out, monkeypatch):
    monkeypatch.setattr("noisegate.studies.execute.load_data", lambda *a: [][0])
    code, output, errors = run()
    assert code == 4
    assert "crashed: IndexError" in output
    assert "2 of 2 runs of demo crashed" in errors
    (failed, _) = out.glob("runs/*/failed.json")
    assert "Traceback" in json.loads(failed.read_text())["traceback"]


def test_a_run_that_diverged_is_a_result(run, out):
    run()
    key = next(iter(finished(out)))
    (out / "runs" / key / "result.json").unlink()
    (out / "runs" / key / "failed.json").write_text('{"status": "diverged", "error": "it diverged"}')
    code, output, errors = run()
    assert (code, errors) == (0, "")
    assert "1 failed" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "ln-tabel1-mnist"], "did you mean 'ln-table1-mnist'"),
        (["report", "demmo"], "did you mean 'demo'"),
        (["run", "demo", "--set", "recipe.epoch=3"], "did you mean 'epochs'"),
        (["run", "demo", "--set", "epochs"], "--set expects KEY=VALUE"),
        (["run", "demo", "--rows", "cee"], "did you mean 'ce'"),
        (["run", "demo", "--columns", "symmetric-41"], "did you mean 'symmetric-40'"),
        (["run", "demo", "--set", "noise.rat=0.1"], "rate"),
        (["run", "demo", "--set", "noise.rate=1.5"], "1.5"),
        (["run", "demo", "--set", "network=foo"], "unknown network 'foo'"),
        (["run", "demo", "--set", "params.temperature=-1"], "-1"),
        (["run", "demo", "--set", "params.temperature=abc"], "temperature must be positive, got 'abc'"),
        (
            ["run", "demo", "--columns", "symmetric-0", "--set", "noise.rate=0.3"],
            "noise.rate changes nothing",
        ),
        (["run", "demo", "--set", "balanced=maybe"], "balanced must be true or false"),
        (["run", "demo", "--set", "evaluate_every=-1"], "at least 0"),
    ],
)
def test_typing_mistakes(fails, out, arguments, message):
    if arguments[0] == "report":
        Store(out)
    assert message in fails("study", *arguments, "--out", out)


def test_missing_data_say_how_to_fetch_them(fails, out, tmp_path):
    line = fails("study", "run", "ln-table1-mnist", "--out", out, "--root", tmp_path / "nowhere")
    assert "noisegate data fetch mnist" in line
    assert "ln-table1-mnist needs mnist" in line


def test_folders_that_are_not_results(fails, out, tmp_path):
    assert "run a study first" in fails("study", "report", "demo", "--out", tmp_path)
    (tmp_path / "file").touch()
    assert "not a folder of results" in fails("study", "run", "demo", "--out", tmp_path)
    Store(out)
    assert "has no results of a study yet" in fails("study", "report", "--out", out)
    assert "noisegate study run demo" in fails("study", "report", "demo", "--out", out)
    (out / "store.json").write_text('{"format": 0, "noisegate": "0.0.9"}')
    assert "format 0 of noisegate 0.0.9" in fails("study", "run", "demo", "--out", out)


# Python heeds Ctrl-C only if its parent did not ignore it, as a shell does for what it runs in the background.
HEEDING = """
import signal, sys
from noisegate.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_stops_every_process_and_the_same_command_goes_on(out):
    line = [sys.executable, "-c", HEEDING, "study", "run", "demo", "--scale", "smoke", "--rows", "ce"]
    line += ["--seeds", "2", "--columns", "symmetric-40", "--set", "recipe.epochs=3000"]
    line += ["--workers", "2", "--device", "cpu", "--out", str(out)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as study:
        try:
            while not list(out.glob("runs/*/progress.json")):
                assert study.poll() is None
                time.sleep(0.05)
            study.send_signal(signal.SIGINT)
            errors = study.communicate(timeout=60)[1]
        finally:
            study.kill()
    assert study.returncode == 130
    # What was asked for is known to a report at once.
    (choice,) = out.glob("reports/demo-smoke-set-*/choice.json")
    stored = json.loads(choice.read_text())
    assert (stored["study"], stored["seeds"], stored["changes"]) == ("demo", 2, {"recipe.epochs": 3000})
    assert errors.endswith("noisegate: interrupted; the same command goes on where it stopped\n")
    assert finished(out) == {}


def test_a_report_has_all_that_was_asked_for(call, out):
    def study(*arguments):
        line = ["study", "run", "demo", "--scale", "smoke", "--columns", "symmetric-40", "--device", "cpu"]
        code, output, errors = call(*line, "--workers", "1", "--out", out, *arguments)
        assert code == 0, errors
        return output

    def reported(*arguments):
        code, output, errors = call("study", "report", "demo", "--scale", "smoke", "--out", out, *arguments)
        assert code == 0, errors
        return output

    def rows(folder):
        lines = (folder / "report.md").read_text().splitlines()
        return {line.split("|")[1].strip() for line in lines if line.startswith("| ") and "n=" in line}

    plain = out / "reports" / "demo-smoke"
    study("--rows", "ce", "--seeds", "1")
    reported()
    assert rows(plain) == {"CE"}
    study("--rows", "ln", "--seeds", "1")
    reported()
    assert rows(plain) == {"CE", "LN"}
    text = (plain / "report.md").read_text()
    assert f"--out {out}" in text
    assert "--rows ce,ln" in text
    # Other settings have a report of their own, beside the first one.
    study("--rows", "gce", "--seeds", "1", "--set", "recipe.epochs=1")
    assert "demo with recipe.epochs = 1:" in reported()
    assert rows(plain) == {"CE", "LN"}
    (changed,) = {path.parent for path in out.glob("reports/*/report.md")} - {plain}
    assert rows(changed) == {"GCE"}


def test_all_reports_go_where_they_are_wanted(run, call, out, tmp_path):
    assert run()[0] == 0
    page = out / "reports" / "demo-smoke" / "report.md"
    before = page.stat().st_mtime_ns
    assert call("study", "report", "--out", out, "--to", tmp_path / "to")[0] == 0
    assert (tmp_path / "to" / "demo-smoke" / "report.md").exists()
    assert page.stat().st_mtime_ns == before


def test_a_study_without_runs_keeps_no_other_from_its_report(run, call, out):
    assert run()[0] == 0
    page = out / "reports" / "demo-smoke" / "report.md"
    page.unlink()
    before = page.with_name("choice.json").read_text()
    for name, text in (("a", before.replace('"demo"', '"causalnl-figure2"')), ("b", "{"), ("c", "{}")):
        (out / "reports" / name).mkdir()
        (out / "reports" / name / "choice.json").write_text(text)
    code, _, errors = call("study", "report", "--out", out)
    assert code == 2
    assert page.exists()
    assert [line.split(":")[1].strip() for line in errors.splitlines()[:3]] == ["a", "b", "c"]
    assert "3 of 4 reports could not be written" in errors


def test_a_report_at_the_wrong_size_says_which_there_is(run, fails, out):
    assert run()[0] == 0
    assert "study report demo --scale smoke" in fails("study", "report", "demo", "--out", out)


def test_a_damaged_choice_is_made_good_by_doing_the_study_again(run, fails, call, out):
    assert run()[0] == 0
    path = out / "reports" / "demo-smoke" / "choice.json"
    whole = path.read_text()
    path.write_text("{}")
    assert "run the study again" in fails("study", "report", "demo", "--scale", "smoke", "--out", out)
    assert run()[0] == 0
    assert path.read_text() == whole


def test_more_seeds_than_the_study_has_are_in_the_report(call, out):
    line = ["study", "run", "demo", "--scale", "smoke", "--rows", "ce", "--columns", "symmetric-40"]
    line += ["--device", "cpu", "--workers", "1", "--set", "recipe.epochs=2", "--out", out]
    assert call(*line)[0] == 0
    code, output, errors = call(*line, "--seeds", "4")
    assert code == 0, errors
    assert "4 of 4 runs done" in output
    (folder,) = out.glob("reports/demo-smoke-set-*")
    assert json.loads((folder / "choice.json").read_text())["seeds"] == 4
    assert len((folder / "runs.csv").read_text().splitlines()) == 1 + 4


def test_a_report_has_what_another_process_did_meanwhile(run, call, out, monkeypatch):
    from noisegate.cli import study

    do = study._do

    def slow(*arguments):
        monkeypatch.setattr(study, "_do", do)
        code, _, errors = run("--rows", "gce")
        assert code == 0, errors
        return do(*arguments)

    monkeypatch.setattr(study, "_do", slow)
    code, _, errors = run()
    assert code == 0, errors
    assert "GCE" in (out / "reports" / "demo-smoke" / "report.md").read_text()
