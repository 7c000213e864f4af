"""How well audits find wrong labels."""

from noisegate.studies.papers.audit.cells import STUDIES

__all__ = ["STUDIES"]
