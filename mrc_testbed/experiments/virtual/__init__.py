"""Virtual runs: a scenario in virtual time, on the simulator."""
