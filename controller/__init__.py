"""Fabric controller: keeps every switch equal to the plan and lists faults (docs/controller.md).

    app         all of it, one task for each duty        config         what the controller is started with, checked
    denylist    the policy, and the agents' lists        reconvergence  when groups follow what has died (pure)
    p4runtime/  session        one P4Runtime connection       provisioner    one switch kept as the plan wants it
                entries        entries by name and text       routes, qos    the plan's entries, the egress discipline's
                pruning        entries by what is alive       counters       counters and queues, when asked
    faults/     correlator     symptoms in, faults out (pure) diagnosis      which causes explain them (pure)
                fault_list     life cycle of faults (pure)    fault_model    symptoms and faults as records (pure)
                path_stats     what watched paths prove       path_segments  what a probe or an EV crosses (pure)
                forwarding     what switches received, sent   timers         hold-down times of the correlation
                journal        the fault list on disk         observations   what the correlator was told, for replay
    sources/    gnmi_ports, host_agents, clustermapper, queue_drops (full queues, which are no faults)
    api/        server         HTTP/JSON and its events       handlers       what it answers
                rpc_client     requests to the hosts' processes

The HTTP/JSON API, request by request: docs/northbound.md.
"""
