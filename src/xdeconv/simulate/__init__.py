"""Gaia-like rows, as many as one likes, with the truth kept.

It imports from rows and system."""

from ._gaia import CHUNK, LABELS, POPULATIONS, UNITS, Simulated, gaia, gaia_chunk, gaia_chunks

__all__ = ["CHUNK", "LABELS", "POPULATIONS", "UNITS", "Simulated", "gaia", "gaia_chunk", "gaia_chunks"]
