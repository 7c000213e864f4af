"""Help without torch, errors in one line, exit codes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noisegate
from noisegate.cli import main
from noisegate.cli.app import app, message_of
from noisegate.errors import InputError

COMMANDS = (
    "",
    "audit",
    "demo",
    "fit",
    "predict",
    "review",
    "apply",
    "list",
    "data",
    "data list",
    "data fetch",
    "data corrupt",
    "study",
    "study list",
    "study run",
    "study report",
)
HEAVY = ("torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "PIL", "pyarrow")

HELP = f"""
import sys
from noisegate.cli import main
for command in {COMMANDS!r}:
    assert main([*command.split(), "--help"]) == 0, command
assert main(["--version"]) == 0
heavy = sorted(set({HEAVY!r}) & set(sys.modules))
assert not heavy, f"help imported {{heavy}}"
"""


def test_help_of_every_command_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert f"noisegate {command}".strip() in done.stdout
    assert f"noisegate {noisegate.__version__}" in done.stdout


def test_every_command_is_in_the_list_above():
    import typer.main

    group = typer.main.get_command(app)
    found = {""}
    for name, command in group.commands.items():
        found.add(name)
        found |= {f"{name} {inner}" for inner in getattr(command, "commands", {})}
    assert found == set(COMMANDS)


@pytest.mark.parametrize("arguments", [(), ("data",)])
def test_without_a_command_the_help_answers(call, arguments):
    code, out, err = call(*arguments)
    assert (code, err) == (0, "")
    assert "Usage" in out
    assert "list" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fitt",), "fitt"),
        (("fit",), "DATA"),
        (("fit", "x.csv", "--lable", "y"), "--lable"),
        (("fit", "digits", "--seed", "-1"), "--seed"),
        (("fit", "digits", "--seed", "two"), "--seed"),
        (("list", "method"), "methods"),
    ],
)
def test_usage_errors_are_one_line_and_name_the_help(fails, arguments, expected):
    line = fails(*arguments)
    assert expected in line
    assert "--help`" in line


def test_debug_shows_the_traceback_above_the_line(call):
    code, _, err = call("--debug", "fit", "nothing-there.csv", "--label", "y")
    assert code == 2
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("noisegate: error: there is no file")


def test_ctrl_c_is_one_line_and_130(call, monkeypatch, table, tmp_path):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("noisegate.data.load", interrupted)
    code, _, err = call("fit", table, "--label", "species", "--out", tmp_path / "m")
    assert code == 130
    assert err.startswith("noisegate: interrupted; with --checkpoint")
    assert err.count("\n") == 1
    code, _, err = call(
        "fit", table, "--label", "species", "--out", tmp_path / "m", "--checkpoint", tmp_path / "c"
    )
    assert (code, err) == (
        130,
        "noisegate: interrupted; the same command goes on from its last checkpoint, at most half a minute back\n",
    )
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("two\n  lines"), "two lines"),
        (OSError(28, "No space left on device", "m/w"), "No space left on device: m/w"),
        (MemoryError(), "out of memory"),
        (KeyError("x"), "unexpected KeyError: 'x'"),
    ],
)
def test_messages(error, line):
    assert message_of(error).startswith(line)
    assert "\n" not in message_of(error)


def test_a_full_disk_is_one_line(fails, monkeypatch, tmp_path):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device", "labels.txt")

    monkeypatch.setattr("noisegate._io.files.write_text", full)
    line = fails(
        *("data", "corrupt", "digits", "--noise", "symmetric", "--rate", "0.2"),
        *("--out", tmp_path / "labels.txt"),
    )
    assert line == "noisegate: error: No space left on device: labels.txt\n"


def test_main_reads_the_arguments_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["noisegate", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == f"noisegate {noisegate.__version__}\n"


def _run(command, tmp_path, stdout, **environment):
    """A command line in a process of its own, with standard output as given."""
    full = os.environ | environment
    done = subprocess.run(
        [sys.executable, "-m", "noisegate", *map(str, command)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=full,
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A table whose labels no ASCII terminal can show."""
    path = tmp_path_factory.mktemp("words") / "t.csv"
    rows = [f"{i % 2 + i / 100},{'weiß' if i % 2 else 'rötlich'}" for i in range(40)]
    path.write_text("x,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


FIT = ("--label", "label", "--method", "ce", "--network", "mlp-4", "--recipe", "epochs=1", "--device", "cpu")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_fit_whose_output_cannot_be_written_has_saved_its_model(words, tmp_path):
    with open("/dev/full", "w") as full:
        code, err = _run(["fit", words, *FIT, "--out", tmp_path / "m"], tmp_path, full)
        assert (tmp_path / "m" / "model.json").exists()
        assert code == 0
        assert "done, but standard output could not be written: No space left on device" in err
        assert "Traceback" not in err
        code, err = _run(["predict", tmp_path / "m", words], tmp_path, full)
        assert (code, "could not be written" in err) == (1, True)  # the predictions are lost


def test_a_fit_whose_output_is_closed_saves_its_model(words, tmp_path):
    line = [sys.executable, "-m", "noisegate", "fit", str(words), *FIT, "--out", str(tmp_path / "m")]
    done = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *line], check=False)
    assert done.returncode == 0
    assert (tmp_path / "m" / "model.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux only")
def test_a_table_whose_name_is_not_utf8_is_fitted_predicted_and_audited(words, tmp_path, call):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/n\xff\x1b[31m.csv")
    shutil.copy(words, path)
    assert call("fit", path, *FIT, "--out", tmp_path / "m")[0] in (0, 3)  # 3: one epoch teaches nothing
    assert call("predict", tmp_path / "m", path, "--out", tmp_path / "p.csv")[0] == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 41
    assert call("audit", path, *FIT, "--folds", "2", "--out", tmp_path / "a")[0] == 0
    assert r"Audit of n\udcff" in (tmp_path / "a" / "report.html").read_text()


def test_a_reader_that_goes_away_is_no_error(words, tmp_path):
    read, write = os.pipe()
    os.close(read)
    code, err = _run(["fit", words, *FIT, "--out", tmp_path / "m"], tmp_path, write)
    os.close(write)
    assert (code, "Traceback" in err, "error" in err) == (0, False, False)
    assert (tmp_path / "m" / "model.json").exists()


def test_labels_that_the_terminal_cannot_show_are_escaped(words, tmp_path):
    out = tmp_path / "out.txt"
    with open(out, "w") as file:
        code, _ = _run(
            ["fit", words, *FIT, "--out", tmp_path / "m"], tmp_path, file, PYTHONIOENCODING="ascii"
        )
        assert code == 0
        code, err = _run(["predict", tmp_path / "m", words], tmp_path, file, PYTHONIOENCODING="ascii")
    assert code == 0, err
    assert r"r\xf6tlich" in out.read_text()
