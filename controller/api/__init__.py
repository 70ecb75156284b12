"""Northbound API: HTTP server, its answers, and the client that asks the hosts' processes."""
