"""Topologies: the fabric as data, the same in Mininet, and its prompt.

plan   names, ports, addresses, uSIDs, EVs and routes of a fabric: pure data (Plan)
lab    the plan in Mininet: Fabric (fabric.py), targets, cables, traffic control, injected faults
cli    the prompt of a running fabric: run_cli (shell.py) and its commands
"""
