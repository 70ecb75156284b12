"""The fabric controller: program and static routes to every switch, read back; port state; the fault list.

    inputs      the run folder's files, checked        keeper   one switch kept as the plan wants it
    routes      the plan's routes as entries           ports    oper-status of all interfaces over gNMI
    entries     entries by name, text, differences     faults   reports in, located faults out (pure)
    session     one P4Runtime connection               app      all of them, and the northbound socket

Northbound, `controller.sock` in the run folder (JSON lines, topologies/jsonl.py; every time is CLOCK_MONOTONIC
seconds)::

    status    ready, program, plan, writes_after_start, active_faults,
              switches: {name: {state, reason, since, connected, pipeline, verified, entries, digest, start_digest,
                                entries_written, pipeline_loads, writes_after_start, writes_after_start_by_reason,
                                restarts, reconnects}},
              ports: [{address, subscribed, interfaces, reason}]                        one per gNMI server
    faults    faults: [{number, kind, location, plane, text, state, first_seen, last_seen, cleared, into,
                        evidence: [{source, about, says, first_seen, last_seen, cleared}]}], active
    verify    reads every table now. unchanged_since_start, digests: {name: digest}, differences: [text],
              switches: {name: {digest, start_digest, entries, unchanged, differences, error}};
              with {"entries": true} also `lines`, the text of every entry read
    watch     events: switch {switch, state, reason}; port {interface, status, link, source};
              fault {change: raised | updated | cleared | merged, fault: as above}.
              First come the state of every switch and the active faults.
    shutdown  ends the controller; switches keep their tables
"""
