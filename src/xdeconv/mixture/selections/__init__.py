"""Selection functions: the chance that a row was kept, in closed form or as an average over draws.

It imports from background, boxes and matrices of mixture, and from rooms below."""
