"""Kills, damaged files, many components and long runs."""
