"""Hosts: MRC engine, verbs, NICs, agent, Clustermapper, traffic generators and tools.

Overview: docs/architecture.md.
"""
