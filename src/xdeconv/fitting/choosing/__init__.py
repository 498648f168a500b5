"""How many components: a walk down in their number, and rows left out that judge each.

It imports from the rest of fitting."""
