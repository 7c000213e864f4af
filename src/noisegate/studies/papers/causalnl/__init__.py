"""Yao et al. 2021, CausalNL."""

from noisegate.studies.papers.causalnl.cells import STUDIES

__all__ = ["STUDIES"]
