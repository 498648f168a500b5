"""Rows that are read in every pass: time and memory."""
