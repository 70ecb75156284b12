"""RPC services of the agent."""
