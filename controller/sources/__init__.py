"""Sources of symptoms: gNMI port state, host agents, Clustermapper, full queues."""
