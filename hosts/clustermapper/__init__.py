"""Clustermapper: probes every link from every host, all the time (§9).

The packets come back to their sender.

    targets.py   which host probes which switch, so that each link is covered (pure)
    packets.py   the probe on the wire: built, recognised, filtered (pure)
    health.py    what the fate of its probes says about one target (pure)
    prober.py    rounds of probes, patience, stalls: what was lost, late or void (pure)
    burst.py     many probes over every link at once, for `mrc check` (pure)
    ports.py     packet sockets in the hosts' namespaces
    __main__.py  the process: clock, sockets, mapper.sock

One process holds the agents of all hosts: each has its own sockets, inside its host's namespace, and knows nothing that
the host itself could not see. A real deployment runs one agent per node; here they share an interpreter (2 cores).
"""
