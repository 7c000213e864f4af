"""Counts of contradicted labels, against counts made by hand and across everything a run can go through."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import noisegate as ng
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct
from noisegate.training import trainer
from noisegate.training.phase import Phase

RECIPE = {"epochs": 6, "batch_size": 10}


class Counting(Direct):
    """Counts by hand, from a second pass over each batch before its step."""

    def __init__(self, network, objective, counts):
        super().__init__(network, objective)
        self.by_hand = counts

    def forward(self, batch):
        with torch.no_grad():
            wrong = self.network.network(self.network.prepare(batch.x)).argmax(1) != batch.y
            for row, other in zip(batch.index.tolist(), wrong.tolist(), strict=True):
                self.by_hand[row] += other
        return super().forward(batch)


@dataclass
class Twice(Method):
    """Two phases over all rows, and one over half of them."""

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        self.by_hand = [0] * len(job.train)
        for rows in (None, torch.arange(0, len(job.train), 2), None):
            yield Phase(Counting(network, objective, self.by_hand), job.recipe, rows=rows)
        return ng.Fitted(network, objective)


def test_counts_are_those_made_by_hand_over_all_phases(data):
    method = Twice()
    fitted = ng.train(data, method, recipe=RECIPE, device="cpu", progress=False)
    counts = fitted.extras["contradicted"]
    assert counts.dtype == torch.int32
    assert counts.tolist() == method.by_hand
    assert 0 < counts.sum() < 3 * 6 * len(counts)


@pytest.mark.parametrize("name", ["ce", "ln", "het", "backward", "elr", "co-teaching", "decoupling"])
def test_wrong_labels_are_contradicted_more_often(name, data):
    given = data.train
    fitted = ng.train(data, name, recipe=RECIPE, seed=0, device="cpu", progress=False)
    rows = fitted.extras["row"].numpy()
    wrong = given.y[rows] != given.clean[rows]
    assert roc_auc_score(wrong, fitted.extras["contradicted"]) > 0.85


def test_methods_that_mix_inputs_have_no_counts(data):
    assert "contradicted" not in ng.train(data, "mixup", recipe=RECIPE, device="cpu").extras


def test_counting_draws_nothing():
    objective = ng.Heteroscedastic(3, n_samples=5, n_samples_eval=5).train()
    before = torch.get_rng_state()
    found = objective.most_probable(torch.tensor([[0.0, 2.0, 1.0, 0.0, 0.0, 0.0]]))
    assert found.tolist() == [1]
    assert torch.equal(before, torch.get_rng_state())


def test_rows_are_numbered_as_the_caller_does():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    weight = np.ones(60)
    weight[:7] = 0
    clf = ng.NoisyLabelClassifier("ce", recipe=RECIPE, random_state=0).fit(x, y, weight)
    extras = clf.fitted_.extras
    assert extras["row"].tolist() == list(range(7, 60))
    assert len(extras["contradicted"]) == 53


class Stopped(Exception):
    """Stands for a kill."""


def test_a_resumed_run_has_the_counts_of_an_undisturbed_one(data, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now[0])

    def stop(epoch):
        now[0] += 40
        if (epoch.phase, epoch.epoch) == (2, 4):
            raise Stopped

    def run(folder, on_epoch=None):
        method = Twice()
        return ng.train(
            data, method, recipe=RECIPE, device="cpu", folder=folder, on_epoch=on_epoch, progress=False
        )

    whole = run(tmp_path / "whole").extras["contradicted"]
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", stop)
    assert torch.equal(run(tmp_path / "stopped").extras["contradicted"], whole)
    # What is finished is read, not trained.
    assert torch.equal(run(tmp_path / "stopped").extras["contradicted"], whole)
