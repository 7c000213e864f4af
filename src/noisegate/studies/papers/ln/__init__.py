"""Englesson et al. 2023, Logistic-Normal likelihoods."""

from noisegate.studies.papers.ln.studies import STUDIES

__all__ = ["STUDIES"]
