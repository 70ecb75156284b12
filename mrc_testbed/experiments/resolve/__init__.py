"""From a run of a scenario to its plan: names checked, defaults filled in, dice thrown."""
