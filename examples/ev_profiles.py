#!/usr/bin/env python3
"""Controller that probes paths and writes an EXPLICIT profile of the good ones.

Then it denies one EV and watches the packets. Virtual time: `python examples/ev_profiles.py`
"""

from mrc_testbed.hosts.verbs import (
    EpRequest,
    EvEntry,
    EvField,
    EvFormat,
    EvMode,
    EvOp,
    EvOpEntry,
    EvProfileAttr,
    EvStateMask,
    ProfileState,
    QpInitAttr,
    SendWR,
    VirtualWire,
    bring_up,
    expand,
    local_info,
)

wire = VirtualWire(planes=4, uplinks=4, delay_s=0.004)
a, b = wire.open("a"), wire.open("b")
wire.cut(0x203)  # plane 2, uplink 3 is broken
wire.path("a", "b", 0x101).delay_s = 0.020  # plane 1, uplink 1 is slow
control = a.controller

# 1. One EV probe per path. An EV here is plane << 8 | uplink; ports count from 1.
evs = [plane << 8 | uplink for plane in range(4) for uplink in range(4)]
requests = [EpRequest(ev, b.query_gid(), ev, (ev >> 8) + 1) for ev in evs]
answers = sorted(control.ep_op(requests, timeout_ns=50_000_000), key=lambda answer: answer.req_id)
for answer in answers:
    if not answer.ok or answer.rtt_ns > 10_000_000:
        rtt = "no answer" if answer.rtt_ns is None else f"{answer.rtt_ns / 1e6:.0f} ms"
        print(f"EV {answer.req_id:#05x}: {rtt}")
good_paths = [answer.req_id for answer in answers if answer.ok and answer.rtt_ns < 10_000_000]

# 2. A format: 16 bits unused, 8 for the plane, 8 for the uplink. The profile varies two bits of each.
control.modify_ev_fmt_profile(1, state=ProfileState.OFFLINE, mode=EvFormat.SRV6, fields=[16, 8, 8])
control.modify_ev_fmt_profile(1, state=ProfileState.ONLINE)
fields = [EvField(16), EvField(8, mask=0b11, max_val=3), EvField(8, mask=0b11, max_val=3)]
packed = {ev >> 8 << 2 | ev & 3: ev for ev in good_paths}  # packed EV: two bits of plane, two bits of uplink
assert all(expand(bits, fields, [16, 8, 8]) == ev for bits, ev in packed.items())

# 3. The profile: INIT -> OFFLINE, every entry filled in, -> ONLINE.
control.modify_ev_profile(
    7,
    EvProfileAttr(
        ProfileState.OFFLINE,
        EvMode.EXPLICIT,
        ev_fmt_profile_id=1,
        ev_count=len(good_paths),
        ev_min_active=len(good_paths) // 4,
        ev_event_mask=EvStateMask.GOOD | EvStateMask.ASSUMED_BAD,
        fields=fields,
    ),
)
control.ev_op(7, EvOp.REPLACE_EV, [EvOpEntry(ev_new=EvEntry(bits, (ev >> 8) + 1)) for bits, ev in packed.items()])
denied = EvEntry(0b0000, 1)  # plane 0, uplink 0: due for maintenance
control.ev_op(7, EvOp.MODIFY_STATE, [EvOpEntry(denied, state=EvStateMask.DENIED)])
control.modify_ev_profile(7, EvProfileAttr(ProfileState.ONLINE))

# 4. A QP that uses it. (The other end needs none: a QP without profile has AUTO.)
source, target = a.reg_mr(bytearray(1 << 20)), b.reg_mr(bytearray(1 << 20))
cq_a, cq_b = a.create_cq(16), b.create_cq(16)
qp_a, qp_b = a.create_qp(QpInitAttr(cq_a)), b.create_qp(QpInitAttr(cq_b))
info_a, info_b = local_info(qp_a), local_info(qp_b)
bring_up(qp_b, info_b, info_a)
bring_up(qp_a, info_a, info_b, ev_profile_id=7)
qp_a.post_send(SendWR(1, sg_list=[source.sge()], remote_addr=target.addr, rkey=target.rkey))
assert cq_a.wait(timeout_s=5.0)[0].ok

for entry in control.ev_op(7, EvOp.QUERY_ARRAY):
    ev = packed[entry.ev.val]
    row = next(row for row in qp_a.ev_states() if row["ev"] == ev)
    status = "in rotation" if row["active"] else "-" if entry.state is EvStateMask.DENIED else "backup"
    print(f"EV {ev:#05x}: {entry.state.name:6} {status:11} {row['sent']:3} packets")
    assert row["sent"] == 0 or entry.ev != denied
assert qp_a.counters.lost == 0
print("ok")
