"""Simulation testing: random fabrics, workloads, faults and configurations on the unchanged engines.

schedule.py   what one run does, as a record that goes through JSON; `draw(seed)` makes one
invariants.py      the invariants, checked at every packet, event and signal
run.py        one schedule on the virtual-time fabric
shrink.py     a failing schedule made small
campaign.py   many seeds on several processes, and the report
"""
