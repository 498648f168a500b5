"""Seconds of the plain call, everything included."""
