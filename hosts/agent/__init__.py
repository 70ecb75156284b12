"""The agent: one process in each host, around NIC, engine and RPC services."""
