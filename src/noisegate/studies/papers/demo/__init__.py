"""No paper: a first look at six methods."""

from noisegate.studies.papers.demo.cells import STUDIES

__all__ = ["STUDIES"]
