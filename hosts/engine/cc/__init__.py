"""Congestion control: NSCC, QPCC and their profiles, windows, the incast signal."""
