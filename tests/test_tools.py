"""The way through the trainer stays short, and its parts stay small."""

import ast
import importlib.util
from pathlib import Path

import pytest

import noisegate.training

ROOT = Path(__file__).parents[1]
FILES = sorted(Path(noisegate.training.__file__).parent.rglob("*.py"))


@pytest.fixture(scope="module")
def walk():
    spec = importlib.util.spec_from_file_location("walk", ROOT / "tools" / "walk.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ten_calls_lead_from_train_to_an_update(walk, capsys):
    frames = walk.walk()
    assert frames[0].name == "train"
    assert frames[-1].name == "arrive"
    assert len(frames) <= 10
    assert walk.main() == 0
    assert capsys.readouterr().out.count("\n") == len(frames)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_parts_of_the_trainer_are_small(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            assert len(methods) <= 15, node.name
