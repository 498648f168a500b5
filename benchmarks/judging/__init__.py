"""Whether checks and memberships are right: `python -m benchmarks.judging`."""
