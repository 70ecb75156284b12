"""What processes need to meet: RPC, run folder, child processes, units, errors. A leaf: imports nothing of ours."""
