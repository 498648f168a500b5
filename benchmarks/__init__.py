"""Measurements that can be repeated: one folder per family, each a command, `python -m benchmarks.FAMILY`."""
