"""How fast the kernels are, on CPUs and GPUs."""
