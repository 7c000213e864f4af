"""A run that is really killed, again and again, ends with exactly the result of an undisturbed one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import noisegate as ng
from noisegate.errors import BusyError, DivergedError, InputError
from noisegate.training import trainer
from noisegate.training.checkpoint import RunFolder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    work = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killed_run.py")
    done = subprocess.run(
        [sys.executable, script, work], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return work, json.loads(done.stdout.splitlines()[-1])


def test_a_killed_run_ends_with_exactly_the_undisturbed_result(killed):
    _, result = killed
    # All eleven attempts die, unless a machine is so quick that the last ones end before they are killed.
    assert result["deaths"] >= 8
    assert result["resumed"] == result["undisturbed"]
    assert [len(phase) for phase in result["resumed"]["history"]] == [6, 6, 6]


def test_no_half_files_are_left_that_anyone_reads(killed):
    work, _ = killed
    finished = sorted(p.name for p in (work / "killed").iterdir() if not p.name.startswith("."))
    assert finished == ["phase-0.safetensors", "phase-1.safetensors", "phase-2.safetensors", "run.json"]


def test_a_finished_run_is_not_trained_again(data, tmp_path):
    first = ng.train(data, "ce", recipe={"epochs": 3}, folder=tmp_path)
    seen = []
    again = ng.train(data, "ce", recipe={"epochs": 3}, folder=tmp_path, on_epoch=seen.append)
    assert seen == []
    assert again.history == first.history
    assert (again.predict_proba(data.test.x) == first.predict_proba(data.test.x)).all()


def test_checkpoints_are_written_every_thirty_seconds_at_the_end_of_an_epoch(data, tmp_path, monkeypatch):
    now, saved = [0.0], []
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        RunFolder, "save_current", lambda self, phase, state: saved.append(state["counters"][2])
    )

    def tick(epoch):
        now[0] += 12.0

    ng.train(data, "ce", recipe={"epochs": 8}, folder=tmp_path, on_epoch=tick)
    # 36 s after the start, and again after at least 30 s more.
    assert saved == [4, 7]


def test_a_run_that_diverged_is_recorded_and_not_repeated(data, tmp_path):
    recipe = {"epochs": 4, "optimizer": "sgd", "lr": 1e18}
    with pytest.raises(DivergedError) as first:
        ng.train(data, "ln", recipe=recipe, folder=tmp_path)
    record = json.loads((tmp_path / "diverged.json").read_text())
    assert record == {"phase": 0, "epoch": first.value.epoch, "step": first.value.step}
    seen = []
    with pytest.raises(DivergedError, match=f"step {first.value.step}"):
        ng.train(data, "ln", recipe=recipe, folder=tmp_path, on_epoch=seen.append)
    assert seen == []


def test_other_settings_in_the_same_folder_are_refused(data, tmp_path):
    ng.train(data, "ce", recipe={"epochs": 2}, folder=tmp_path)
    for change in ({"seed": 1}, {"method": "ln"}, {"recipe": {"epochs": 3}}):
        arguments = {"method": "ce", "recipe": {"epochs": 2}} | change
        with pytest.raises(InputError, match=f"differs in {next(iter(change))}"):
            ng.train(data, **arguments, folder=tmp_path)
    other = data.with_labels((data.train.y + 1) % 3)
    with pytest.raises(InputError, match="differs in data"):
        ng.train(other, "ce", recipe={"epochs": 2}, folder=tmp_path)


def test_two_processes_cannot_train_in_one_folder(data, tmp_path):
    holder = (
        "import sys, time\nfrom noisegate._io.lock import locked\n"
        f"with locked({str(tmp_path)!r}, 'training'):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match="another process is training in"):
            ng.train(data, "ce", recipe={"epochs": 1}, folder=tmp_path)
        process.kill()
        process.wait()
        # The lock dies with its process.
        assert ng.train(data, "ce", recipe={"epochs": 1}, folder=tmp_path).history
