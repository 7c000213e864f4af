"""The contracts of objectives and methods as functions, for your own classes.

Each raises an AssertionError that says which promise is broken. noisegate's tests call them over
every class that it defines.
"""

from noisegate.testing.guard import CaptureGuard
from noisegate.testing.methods import METHOD_CHECKS, check_method
from noisegate.testing.objectives import OBJECTIVE_CHECKS, check_objective

__all__ = ["METHOD_CHECKS", "OBJECTIVE_CHECKS", "CaptureGuard", "check_method", "check_objective"]
