"""The leaf that processes need to meet: RPC, run folder, child processes."""
