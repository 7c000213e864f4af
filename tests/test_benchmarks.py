"""The figures in the report of the GPU are the stored ones, floors are right, and a table of all methods works."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import noisegate as ng
from noisegate.runs.run import Run
from noisegate.training.phase import Batch

FOLDER = Path(__file__).parent.parent / "benchmarks"


def script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu():
    return script("gpu")


def test_the_tables_of_the_report_are_those_of_the_stored_figures(gpu):
    page = (FOLDER / "results" / "gpu.md").read_text()
    found = json.loads((FOLDER / "results" / "gpu.json").read_text())
    assert gpu.TABLES.search(page).group() == gpu.render(found)


@pytest.mark.parametrize(
    ("method", "network", "shape", "params"),
    [
        ("ce", "wrn-10-1", (3, 32, 32), {}),
        ("ln", "lenet5", (1, 28, 28), {}),
        ("co-teaching", "resnet20", (3, 32, 32), {"noise_rate": 0.4}),
        ("causalnl", "lenet5", (1, 28, 28), {"noise_rate": 0.4}),
    ],
)
def test_floors_count_the_operations_that_torch_counts(gpu, method, network, shape, params):
    counted = gpu.floor(method, network, shape, 10, 4, "fp32", **params)
    run = Run(
        gpu.images(8, shape, 10),
        ng.methods.get(method, **params),
        network,
        ng.Recipe(batch_size=4),
        device="cpu",
    )
    job = run._trainer.job
    module = next(run.method.phases(job)).module
    index = torch.arange(4)
    batch = Batch(job.train.gather(index), job.train.y[index], index, torch.ones(4), torch.tensor(0))
    with FlopCounterMode(display=False) as seen:
        module(batch).backward()
    assert counted["gflop"] == pytest.approx(seen.get_total_flops() / 1e9, rel=1e-3)


def test_samples_are_counted_and_factors_cost_more(gpu):
    def work(method, **params):
        return gpu.floor(method, "lenet5", (1, 28, 28), 10, 4, "fp32", **params)["sampled_gflop"]

    assert work("ce") == 0
    assert work("het", n_samples=100) == pytest.approx(4 * 100 * 10 * gpu.SAMPLE / 1e9)
    assert work("het-full", n_samples=100) > work("het", n_samples=100)


def test_a_cell_of_the_table_of_all_methods(monkeypatch):
    table = script("methods_by_noise")
    column = "at random, 50 %"
    small = {column: lambda seed: type(full)(*(part[:80] for part in full))}
    full = table.COLUMNS[column](0)
    monkeypatch.setattr(table, "COLUMNS", small)
    cell = table.cell(column, 0, "ls")
    assert cell["wrong"] == pytest.approx(0.5, abs=0.15)
    assert 0 <= cell["accuracy"] <= 1
    page = table.render({"command": "here", "about": "a test", "cells": [cell]})
    assert f"| ls | 1 | **{100 * cell['accuracy']:.1f}** ± 0.0 |" in page
