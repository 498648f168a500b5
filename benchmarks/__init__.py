"""Measurements that can be repeated: each module is a command, `python -m benchmarks.NAME`."""
