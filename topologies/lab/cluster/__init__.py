"""Live fabric on several machines: ssh, the side of each machine, and the front process's network.

docs/cluster.md describes the design.
"""
