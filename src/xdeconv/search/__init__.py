"""Ways out of EM's local optima: moves of components, each tried where it acts.

It imports from methods and everything below."""
