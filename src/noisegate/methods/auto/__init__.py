"""`auto`: cross-fit candidates, judge the labels, clean if that helps, predict with the ensemble."""

from __future__ import annotations

from noisegate.methods.auto.method import Auto

__all__ = ["Auto"]
