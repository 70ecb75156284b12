"""Resolve a run of a scenario into its plan: check names, fill in defaults, draw at random."""
