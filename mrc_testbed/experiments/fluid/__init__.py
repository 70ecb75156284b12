"""Runs of scenarios on the fluid model: `mrc run --fluid`."""
