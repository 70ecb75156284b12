"""The command `mrc`: demo, live fabric, scenarios, P4 programs, captures and benchmarks; and the pytest plugin."""
