"""The data and methods of the trainer's tests."""

import importlib.util
from pathlib import Path

_FILE = Path(__file__).parents[1] / "training" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("training_conftest", _FILE)
_SHARED = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SHARED)
data, job_for, recorded, weights = (getattr(_SHARED, n) for n in ("data", "job_for", "recorded", "weights"))
