"""How improbable a row is: the density's own p-value, row by row or for many rows of like noise.

It imports from rows, kernels and system."""
