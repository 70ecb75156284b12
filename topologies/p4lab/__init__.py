"""A small lab for P4 programs of one's own: any nodes and links, hosts with Linux's own stacks.

    topology.py   hosts, switches and links: the P4 tutorials' topology.json, or a switch with two hosts
    entries.py    the tutorials' sX-runtime.json as P4Runtime updates
    switch.py     P4Runtime client: load a program, write entries, swap the program and keep what fits
    lab.py        the lab itself, in Mininet

It is no MRC fabric: no plan, controller or agents. Nodes, run folder and switch daemon are those of topologies/lab.
"""
