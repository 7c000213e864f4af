"""What noisegate 0.1.0 has written is still read: models, a run that was stopped, results of a study."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import noisegate as ng
from noisegate.studies.results import Results
from noisegate.studies.runner import plan
from noisegate.studies.store import Store

STORED = Path(__file__).with_name("stored")


@pytest.fixture(scope="module")
def written():
    """How the files were written."""
    spec = importlib.util.spec_from_file_location("stored_write", STORED / "write.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """A copy of a stored folder: reading may write locks."""
    return lambda name: Path(shutil.copytree(STORED / name, tmp_path / name))


def test_a_model_folder_predicts_the_rows_of_its_table(copy, tmp_path):
    out = tmp_path / "predictions.csv"
    command = [
        sys.executable,
        "-m",
        "noisegate",
        "predict",
        copy("model"),
        STORED / "table.csv",
        "--out",
        out,
    ]
    subprocess.run([*command, "--device", "cpu"], check=True, capture_output=True)
    # How rows are numbered is no part of the model.
    found, wanted = (pd.read_csv(path).drop(columns="row") for path in (out, STORED / "predictions.csv"))
    pd.testing.assert_frame_equal(found, wanted, rtol=0, atol=1e-5)


def test_reading_a_model_leaves_the_random_states_alone(copy):
    before = torch.get_rng_state()
    ng.Fitted.load(copy("model"))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_folder_says_how_it_was_trained(copy):
    fitted = ng.Fitted.load(copy("model"))
    assert fitted.record["identity"]["method"]["class"] == "Forward"
    assert ng.methods.Method.from_settings(fitted.record["identity"]["method"]).get_params()["fresh"] is True
    assert np.asarray(fitted.extras["transition"]).sum(1) == pytest.approx(1)


def test_the_classifier_of_an_estimator_predicts_as_before(copy, written):
    folder = copy("estimator")
    classifier = ng.NoisyLabelClassifier.load(folder)
    held = written.data()
    wanted = np.loadtxt(folder / "probabilities.csv", delimiter=",")
    np.testing.assert_allclose(classifier.predict_proba(held.test.x), wanted, atol=2e-6)
    assert set(classifier.predict(held.test.x)) <= {"a", "b", "c"}


def test_a_stopped_run_goes_on_to_the_result_of_one_that_was_not(copy, written):
    seen = []
    resumed = written.train(copy("checkpoint"), lambda epoch: seen.append((epoch.phase, epoch.epoch)))
    phase, epoch = written.STOPPED
    assert seen == [(phase, later) for later in range(epoch + 1, written.RECIPE.epochs + 1)]
    undisturbed = written.train()
    x = written.data().test.x
    # It was begun on another processor, perhaps.
    np.testing.assert_allclose(resumed.predict_proba(x), undisturbed.predict_proba(x), atol=1e-3)
    assert [len(history) for history in resumed.history] == [4, 4]


def test_finished_runs_of_a_study_are_known_and_their_results_read(copy, written):
    folder = copy("study")
    before = _hashes(folder)
    results = Results(written.STUDY, Store(folder))
    assert [len(runs) for runs in (plan(results).finished, plan(results).new)] == [2, 0]
    (cell,) = written.STUDY.cells
    assert len(results.values(cell, "test_accuracy")) == 2
    run = plan(results).finished[0]
    assert results.store.arrays(run)["boundary_probs"].shape == (8, 8, 2)
    again = ng.studies.run(written.STUDY, folder, workers=1, device="cpu")
    assert again.values(cell, "test_accuracy") == results.values(cell, "test_accuracy")
    assert _hashes(folder) == before


def _hashes(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
