"""The examples run; those that need another library run where it is installed and say so otherwise."""

import importlib.util
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_plain_loop():
    scores = runpy.run_path(EXAMPLES / "plain_loop.py")["main"](epochs=25)
    assert scores["LogisticNormal"] > 0.85
    assert scores["LogisticNormal"] > scores["CrossEntropy"]


@pytest.mark.parametrize(
    ("name", "library"), [("lightning_module", "lightning"), ("huggingface_trainer", "transformers")]
)
def test_examples_with_other_libraries(name, library):
    path = EXAMPLES / f"{name}.py"
    if importlib.util.find_spec(library) is None:
        with pytest.raises(SystemExit, match=f"needs .*: pip install {library}"):
            runpy.run_path(path)
    else:
        assert runpy.run_path(path)["main"](epochs=25) > 0.8
