#!/usr/bin/env python3
"""Shortest whole program: two devices on a virtual wire, each attribute of the states by hand.

No root, no fabric, no waiting: time is virtual. `python examples/write.py`
"""

from mrc_testbed.hosts.verbs import (
    IBV_ACCESS_REMOTE_WRITE,
    AddressVector,
    MrcQpAttr,
    QpAttr,
    QpInitAttr,
    QpState,
    SendWR,
    VirtualWire,
)

wire = VirtualWire(planes=4, uplinks=2, delay_s=0.005)  # 8 paths, 5 ms each way
a, b = wire.open("a"), wire.open("b")

attr = a.query_device()
print(f"{attr.name}: {attr.phys_port_cnt} ports, max_mpr {attr.max_mpr} x 128 packets, {attr.cap!r}")

# What verbs programs set up first: memory, a completion queue, a queue pair.
source = a.reg_mr(bytearray(b"MRC " * 25_000), 0)  # 100 kB, read here only
target = b.reg_mr(bytearray(100_000), IBV_ACCESS_REMOTE_WRITE)
cq_a, cq_b = a.create_cq(16), b.create_cq(16)
qp_a, qp_b = a.create_qp(QpInitAttr(cq_a)), b.create_qp(QpInitAttr(cq_b))

# Out of band: QPN, first PSN, address, and the sizes of the responder. (hosts.verbs.exchange does all of this.)
psn = {qp_a: 0x000ABC, qp_b: 0xFFFFFE}
for qp, peer, device in ((qp_a, qp_b, b), (qp_b, qp_a, a)):
    qp.modify(QpAttr(qp_state=QpState.INIT, pkey_index=0, qp_access_flags=IBV_ACCESS_REMOTE_WRITE))
    qp.modify(
        QpAttr(
            qp_state=QpState.RTR,
            ah_attr=AddressVector(device.query_gid(port_num=1)),  # one port's address; all ports are used
            path_mtu=1024,
            dest_qp_num=peer.qp_num,
            rq_psn=psn[peer],
        ),
        mrc_attr=MrcQpAttr(max_wimm_dest=32, mpr_dest=8),  # as responder: 32 WriteIMM, 8 x 128 packets
    )
for qp in (qp_a, qp_b):
    qp.modify(
        QpAttr(qp_state=QpState.RTS, sq_psn=psn[qp]),
        mrc_attr=MrcQpAttr(max_wimm=32, mpr=8, timeout=16, linear_cnt=3, exp_cnt=5),  # as requestor
    )

qp_a.post_send(SendWR(wr_id=1, sg_list=[source.sge()], remote_addr=target.addr, rkey=target.rkey))
[wc] = cq_a.wait(timeout_s=1.0)
print(f"wr_id {wc.wr_id}: {wc.status.name}, {wc.byte_len} bytes at {wc.at * 1000:.0f} ms")
print(f"packets by plane: {qp_a.counters.plane_packets}")
assert target.view == source.view
print("ok")
