"""Whether K is chosen well, and at what cost: `python -m benchmarks.selecting`."""
