"""Runs: where data, method, network, recipe and device come together."""
