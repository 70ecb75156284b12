"""The leaf that processes need to meet: RPC, run folder, child processes, units, errors. Imports nothing of ours."""
