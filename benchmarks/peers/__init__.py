"""Other packages on the same rows from the same start."""
