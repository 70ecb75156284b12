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

Northbound: HTTP/JSON on loopback; `controller.json` in the run folder has its URL. `topologies.northbound.Northbound`
is the client; its `request(op)` names are in brackets. Every time is CLOCK_MONOTONIC seconds::

    GET  /v1/status     [status]   ready, program, mode, plan, writes_after_start, active_faults, sources, denylist,
                                   react_after (seconds, or "never"),
                                   switches: {name: as below}, ports: [{address, subscribed, interfaces, reason}]
    GET  /v1/faults     [faults]   faults: [fault], active.   ?state=active|cleared narrows
    GET  /v1/faults/{n} [fault, number=n]   the fault itself
    GET  /v1/links      [links]    links: [{link, plane, kind: "NIC-T0"|"T0-T1", up, ends: {interface: oper-status},
                                   faults: [number]}]
    GET  /v1/switches   [switches] switches: {name: {tier, plane, state, reason, since, connected, pipeline, verified,
                                   entries, digest, start_digest, entries_written, pipeline_loads,
                                   writes_after_start, writes_after_start_by_reason, restarts, reconnects, faults}}
    GET  /v1/evs?from=h0&to=h2 [evs, **{"from": .., "to": ..}]   evs: [{ev, plane, uplink, address, state, rtt_s,
                                   sent, lost, path: [node], faults: [number]}]
    GET  /v1/counters?switch=p0-t0-0 [counters]   counters: {forwarded | marked | trimmed | drops: [{port, interface,
                                   reason?, packets, bytes}]} that are not zero, ports: [{interface, in_pkts, ...}]
    GET  /v1/queues?switch=p0-t0-0 [queues]   queues: [{interface, queue, depth_packets, depth_bytes, ...}]
    GET  /v1/denylist   [denylist] policy: off|lossy|all, entries: [{scope, ...}], agents: {host: ok or the reason}
    POST /v1/denylist   [set_denylist, policy=]   the same
    POST /v1/verify     [verify]   reads every table now. unchanged_since_start, digests: {name: digest},
                                   differences: [text], switches: {name: {digest, start_digest, entries, unchanged,
                                   differences, error}}; with {"entries": true} also `lines`, every entry's text
    POST /v1/check      [check]    the pre-job check, a burst over every link: ok, bad: ["link: down | lossy"],
                                   faults that are active, links: [as Clustermapper's probe_all has them]
    POST /v1/shutdown   [shutdown] ends the controller; switches keep their tables
    GET  /v1/events     [watch()]  server-sent events, each one JSON object with `event` and `t`; ?events=fault,port.
                                   switch {switch, state, reason}; port {interface, status, link, source};
                                   fault {change: raised | updated | cleared | merged, fault};
                                   ev {host, peer, ev, plane, old, new, cause}; probe {host, plane, target, state,
                                   direction};
                                   denylist {policy, entries}; ready {ready};
                                   digest {switch, reason, egress, ingress, dst_addr}; live {switch, reason: dead port |
                                   port alive | prune | restore, entries, took_s}.
                                   First come the state of every switch and the active faults.

A refusal is HTTP 4xx or 5xx with {"error": what and why, "cure": what would have worked}.

A fault::

    number, state: active | cleared | merged, into: [number] when merged
    kind       link | lossy link | NIC port | T0 | T1 | blackhole | unclear
    location   a switch's name or the two ends of a link as `link` takes them; "A or B" when unclear
    certain    whether it could be told; if not, alternatives: [[{kind, location}, ...], ...] has each explanation
    text       one line for people: "T0-T1 link p1-t0-0 p1-t1-1 down", "cannot tell: T0 p0-t0-0 or NIC port h0 p0-t0-0"
    direction  of a link whose ports are up: "A -> B" when only that direction is broken, "both", or null: not told
    plane, loss (share of packets lost, null when all or unknown), flaps (times it came back and went again)
    first_seen, last_seen (of its evidence), raised (when we named it), cleared
    evidence   one for each source: {source: gnmi | p4runtime | mapper | ev | counters | digest, says, about: [what],
               count, first_seen, last_seen, heard (when we were told), after_s (behind the first source), cleared}
"""
