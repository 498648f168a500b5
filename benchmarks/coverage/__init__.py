"""How often intervals hold the truth: `python -m benchmarks.coverage`."""
