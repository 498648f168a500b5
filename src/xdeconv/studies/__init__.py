"""Many fits, one question: how many components, how sure, how good.

It imports from plot, fitting and everything below."""
