"""Collier et al. 2020, the temperature of the heteroscedastic softmax."""

from noisegate.studies.papers.temperature import cells, maps

STUDIES = (*cells.STUDIES, *maps.STUDIES)

__all__ = ["STUDIES"]
