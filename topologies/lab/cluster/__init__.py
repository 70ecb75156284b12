"""A fabric on several machines: ssh, what runs on each, the network that the front process sees (docs/cluster.md)."""
