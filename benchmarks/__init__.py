"""Measurements that can be repeated: one folder a family, each a command, `python -m benchmarks.FAMILY`."""
