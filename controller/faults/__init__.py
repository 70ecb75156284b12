"""Fault management: symptoms of all sources in, faults with a location and their life cycle out."""
