"""The package as a whole: quick to import, true about what it has."""

import pickle
import subprocess
import sys

import pytest

import noisegate as ng
from noisegate.errors import DivergedError, MissingDataError, UnknownNameError


def test_importing_does_not_import_anything_heavy():
    code = "import noisegate, sys; print([m for m in ('torch', 'numpy', 'sklearn', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_has_a_docstring():
    for name in ng.__all__:
        value = getattr(ng, name)
        assert name == "__version__" or value.__doc__, name
    assert set(ng.__all__) == set(dir(ng))


def test_every_objective_of_the_package_is_a_public_name():
    own = ng.objectives.OBJECTIVES.own().items()
    for name, kind in own:
        if kind.__module__.startswith("noisegate.objectives."):
            assert getattr(ng, name) is kind


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'LogisticNorm'"):
        ng.LogisticNorm


def test_unknown_names_list_what_there_is():
    assert str(UnknownNameError("colour", "blu", ["red", "blue"])) == (
        "unknown colour 'blu'; did you mean 'blue'? (there are: blue, red)"
    )
    assert str(UnknownNameError("colour", "xyz", ["red"])) == "unknown colour 'xyz' (there are: red)"


@pytest.mark.parametrize(
    "error",
    [UnknownNameError("colour", "blu", {"red", "blue"}), DivergedError(1, 2, 3), MissingDataError("no file")],
)
def test_errors_of_other_processes_arrive(error):
    """joblib, process pools and Ray pickle them."""
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), str(arrived), arrived.args) == (type(error), str(error), error.args)


def test_a_missing_file_is_also_pythons_own_error():
    with pytest.raises(FileNotFoundError, match="^there is no such thing$"):
        raise MissingDataError("there is no such thing")
