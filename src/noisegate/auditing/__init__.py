"""Audits: which labels are wrong and why, a report, a page to review them, corrected data."""
