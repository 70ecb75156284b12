"""P4 tools: STF scripts, program graphs, the pytest fixture of a switch in memory."""
