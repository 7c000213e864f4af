"""Measuring classifiers: metrics of probabilities, and plots."""

from __future__ import annotations

from noisegate.evaluation.metrics import accuracy, brier, ece, log_likelihood, summary

__all__ = ["accuracy", "brier", "ece", "log_likelihood", "summary"]
