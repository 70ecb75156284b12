"""Checks of the machines: what the testbed has there, what is missing, the cure; rootless fabrics."""
