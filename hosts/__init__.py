"""Hosts: MRC engine, verbs, NICs, agent, Clustermapper, traffic generators and tools (docs/architecture.md)."""
