"""The density of the true values, and every question to it.

It imports from catalog, kernels, rows and system."""
