"""gNMI server: interfaces and their traffic."""
