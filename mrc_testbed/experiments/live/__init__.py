"""Live runs: a scenario on the fabric in Mininet."""
