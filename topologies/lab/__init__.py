"""Live fabric in Mininet: network, processes, targets and cables.

Traffic control, fault injection and counters of the live fabric are here too.
"""
