"""Tools in the hosts, with the habits of perftest (docs/tools.md).

mrc-write-bw, mrc-write-lat, mrc-ping, mrc-stat.

The host's agent measures (hosts/agent/services/measurement.py), next to engine and NIC; the tool starts the test over
the agent's socket and prints its events. When the tool ends, for whatever reason, the test ends too.
"""
