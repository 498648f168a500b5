"""A search for hyper-parameters, and what the defaults lose against it."""
