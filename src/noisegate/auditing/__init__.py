"""Audits: which labels are wrong, what kind of noise it is, a report, a page to review them, corrected data."""
