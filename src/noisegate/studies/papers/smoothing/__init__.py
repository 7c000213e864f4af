"""Lukasik et al. 2020, label smoothing and label noise."""

from noisegate.studies.papers.smoothing.studies import STUDIES

__all__ = ["STUDIES"]
