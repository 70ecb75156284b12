"""Port numbers of v1model that mean no front port."""

CPU_PORT = 510
"""Port of packet-in and packet-out; the event loop can use another."""
DROP_PORT = 511
"""Packets sent to this port are dropped."""
