"""The fabric controller: keeps every switch as the plan wants it, and knows what is broken (docs/controller.md).

    inputs      the run folder's files, checked        northbound  the HTTP/JSON API and its event stream
    routes      the plan's routes as entries           faults      the fault list: reports in, faults out (pure)
    entries     entries by name, text, differences     explain     which causes explain the reports (pure)
    session     one P4Runtime connection               traces      what a probe or an EV crosses (pure)
    keeper      one switch kept as the plan wants it   journal     the fault list on disk
    ports       oper-status of all interfaces (gNMI)   records     sightings and faults, and their words (pure)
    observations  what the fault list was told, kept and replayed; forwarding  what switches received and sent (pure)
    discipline  entries of the egress discipline       paths       what is known of watched paths (pure)
    liveness    entries that follow what is alive      agents, mapper    the sources on the hosts
    reaction    when groups follow it (pure)
    readings    counters and queues, when asked        denylist    the policy, and the agents' lists
    answers     what the API answers                   congestion  full queues, which are no faults
    app         all of them

The HTTP/JSON API, request by request: docs/northbound.md.
"""
