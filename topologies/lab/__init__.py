"""The fabric in Mininet: network, processes, targets, cables, traffic control, fault injection, counters."""
