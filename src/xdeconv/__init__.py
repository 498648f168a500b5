"""Extreme deconvolution: the density of the true values behind noisy, incomplete data."""
