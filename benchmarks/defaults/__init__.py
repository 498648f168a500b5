"""Starts, steps and batch sizes: why the defaults are what they are."""
