"""What README.md and CONTRIBUTING.md show is run as it stands there."""

import re
from pathlib import Path

import pytest

import noisegate as ng
from noisegate.data import DATASETS
from noisegate.methods import METHODS

ROOT = Path(__file__).parents[1]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def run(source, names=None):
    names = {} if names is None else names
    exec(compile(source, "<documentation>", "exec"), names)
    return names


@pytest.mark.parametrize("number", range(3))
def test_the_three_ways_in_run_as_they_are_printed(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run(blocks("README.md")[number])
    if number == 0:
        out = capsys.readouterr().out
        assert float(out.split()[0]) > 0.9
        assert "suggested_label" in out
    if number == 1:
        assert names["probabilities"].shape == (64, 10)
    if number == 2:
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["ce", "gce"]
        assert all(set(names["results"].values(cell, "test_accuracy")) == {0, 1} for cell in names["mine"])


def test_what_contributing_adds_works(tmp_path):
    names = {"__name__": "contributed"}
    try:
        for block in blocks("CONTRIBUTING.md"):
            run(block, names)
        data = ng.data.load("stripes", n=300).corrupt(names["LastDigit"](0.2), seed=0)
        assert 0.05 < data.noise_report().rate < 0.15
        for method in (names["Tempered"], "two-stage"):
            assert ng.train(data, method, recipe={"epochs": 5}).metrics["test_accuracy"] > 0.3
        results = ng.studies.run(names["stripes_study"], tmp_path / "results", workers=1)
        for cell in results.study:
            assert set(results.values(cell, "test_accuracy")) == {0, 1}
    finally:
        METHODS.pop("two-stage", None)
        DATASETS.pop("stripes", None)
