"""The wheel: what is in it, and that it works where nothing of the repository is."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import noisegate as ng

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: What a user's program looks like to a type checker: the names of the README's three ways in.
PROGRAM = """
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

import noisegate as ng

objective = ng.LogisticNormal(n_classes=10, temperature=1.0, min_scale=0.5)
width: int = objective.n_outputs
network = torch.nn.Linear(64, width)
objective.init_head_(network)
loss: torch.Tensor = objective(network(torch.zeros(4, 64)), torch.zeros(4, dtype=torch.int64))
probabilities: torch.Tensor = objective.probs(network(torch.zeros(4, 64)))

data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
assert data.test is not None
fitted: ng.Fitted = ng.train(data, method="ln", recipe=ng.Recipe(epochs=1), device="cpu")
accuracy: float = fitted.metrics["test_accuracy"]
clf = ng.NoisyLabelClassifier("ln", recipe={"epochs": 1}, random_state=0)
clf = clf.fit(data.train.x, data.train.y).fit(pd.DataFrame({"a": [1.0, 2.0]}), ["x", "y"])
labels: npt.NDArray[Any] = clf.predict(data.test.x)
clf.save(Path("model"))
again: ng.NoisyLabelClassifier = ng.NoisyLabelClassifier.load("model")
probs: npt.NDArray[np.float64] = again.predict_proba(data.train.x)
quality: npt.NDArray[np.float64] = ng.label_quality(probs, data.train.y)
flagged: npt.NDArray[np.bool_] = ng.find_label_issues(probs, data.train.y, point="sure")
report: ng.AuditReport = ng.audit(data.train.x, data.train.y, probs=probs)
report.to_html("report.html")
rate: float = report.noise_rate
issues: pd.DataFrame = report.issues
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the sources: a build leaves files beside them."""
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("dist")
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def clean(wheel, tmp_path_factory):
    """Run a command of an environment with the wheel, the libraries it needs, and nothing of the repository."""
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    commands = folder / "env" / "bin"
    python = commands / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, "--ignore-installed", wheel], check=True, capture_output=True)

    def run(command, *arguments):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [commands / command, *arguments], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.folder = folder
    return run


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "noisegate"
    expected = {
        str(path.relative_to(ROOT / "src"))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {"noisegate/py.typed", "noisegate/__init__.pyi"} <= held
    assert any(name.endswith("review/static/page.html") for name in held)
    assert any(name.endswith("report.html.j2") for name in held)


def test_the_wheel_says_what_it_needs(wheel):
    assert wheel.name == f"noisegate-{ng.__version__}-py3-none-any.whl"
    files = zipfile.ZipFile(wheel)
    names = {name.partition(".dist-info/")[2]: name for name in files.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(files.read(names["METADATA"]).decode())
    assert metadata["Version"] == ng.__version__
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(needed) == sorted(PROJECT["dependencies"])
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert "noisegate = noisegate.cli:main" in files.read(names["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in names


def test_the_installed_command_works(clean):
    where = clean("python", "-c", "import noisegate; print(noisegate.__file__)").strip()
    assert Path(where).is_relative_to(clean.folder)
    assert clean("noisegate", "--version").split()[-1] == ng.__version__
    listed = clean("noisegate", "list", "methods")
    assert all(re.search(rf"\b{name}\b", listed) for name in ("auto", "ce", "co-teaching", "t-revision"))


@pytest.mark.slow
def test_the_installed_package_audits(clean):
    table = clean.folder / "small.csv"
    table.write_text("a,b,label\n" + "".join(f"{i},{i % 7},{'xy'[i > 30]}\n" for i in range(60)))
    out = clean("noisegate", "audit", "small.csv", "--label", "label", "--method", "ce", "--out", "AUDIT")
    assert "labels are wrong" in out
    report = (clean.folder / "AUDIT" / "report.html").read_text()
    assert "</html>" in report
    assert "sortable" in report or "<table" in report


@pytest.mark.slow
def test_the_installed_package_tells_the_whole_story(clean):
    out = clean("noisegate", "demo", "--out", "demo")
    assert "ce" in out
    assert any((clean.folder / "demo").rglob("*.html"))


@pytest.mark.slow
def test_a_users_program_type_checks_strictly(clean):
    pytest.importorskip("mypy")
    (clean.folder / "program.py").write_text(PROGRAM)
    assert "Success" in clean("python", "-m", "mypy", "--strict", "program.py")
