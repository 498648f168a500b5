"""A billion rows, many components, several ranks."""
