"""Runs: one training of a method on data, with a network, a recipe and a device."""
