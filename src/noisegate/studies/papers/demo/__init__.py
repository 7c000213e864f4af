"""No paper: a first look at seven methods."""

from noisegate.studies.papers.demo.cells import STUDIES

__all__ = ["STUDIES"]
