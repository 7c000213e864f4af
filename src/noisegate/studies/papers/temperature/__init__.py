"""Collier et al. 2020, the temperature of the heteroscedastic softmax."""

from noisegate.studies.papers.temperature.cells import STUDIES

__all__ = ["STUDIES"]
