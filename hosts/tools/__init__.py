"""Tools in the hosts, with the habits of perftest: mrc-write-bw, mrc-write-lat, mrc-ping, mrc-stat (docs/tools.md).

Each is thin: the measuring is done by the host's agent (hosts/agent/services/measurement.py), next to engine and NIC;
the tool asks for it over the agent's socket, prints what comes, and when it ends, however it ends, the test ends too.
"""
