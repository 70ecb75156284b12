"""Fluid model: rates instead of packets, the state of every EV of every NIC in arrays (docs/fluid.md)."""
