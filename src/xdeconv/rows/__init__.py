"""Noisy rows: what they are, where they come from in memory, how they are checked, and where they are kept.

It imports from system alone."""
