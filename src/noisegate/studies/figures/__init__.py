"""Figures of the papers, drawn from stored results."""
