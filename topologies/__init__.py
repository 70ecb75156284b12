"""Topologies: the fabric as data (plan), the same in Mininet (lab), and its prompt (cli)."""
