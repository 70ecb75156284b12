"""A P4 switch: compiler, C runtime, devices in Python, and servers for P4Runtime and gNMI."""
