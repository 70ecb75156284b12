"""Paths: entropy values, probes, ACK paths, the table of peers."""
