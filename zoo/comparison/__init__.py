"""Studies: a grid of ordinary runs, what they showed, and what may be said of it."""
