#!/usr/bin/env python3
"""One program over MRC and over RoCEv2 RC, on a modelled fabric with 1 % random loss.

A QP type is all that differs: 4 MiB from h0 to h1 over 2 planes x 2 spines, in virtual time. Run with
`python examples/loss.py`.
"""

from mrc_testbed.faults import LossFault
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import QpInitAttr, QpType, SendWR, connect_pair
from mrc_testbed.simulator import VirtualFabric
from mrc_testbed.simulator.verbs import open_device
from mrc_testbed.topologies.plan import Plan

TOTAL, CHUNK = 1 << 22, 1 << 18


def run(qp_type: QpType, loss: float) -> float:
    """Goodput in Mb/s."""
    fabric = VirtualFabric(Plan(planes=2, racks=2, spines=2, hosts_per_rack=1), seed=11, config=Config())
    if loss:
        for spine in range(2):
            for plane in range(2):
                fabric.apply(LossFault.on(f"p{plane}-t0-0 p{plane}-t1-{spine}", rate=loss, direction="one_way"))
    a, b = open_device(fabric, "h0"), open_device(fabric, "h1")
    source, target = a.reg_mr(bytearray(TOTAL)), b.reg_mr(bytearray(TOTAL))
    cq_a, cq_b = a.create_cq(64), b.create_cq(64)
    qp_a, qp_b = a.create_qp(QpInitAttr(cq_a, qp_type=qp_type)), b.create_qp(QpInitAttr(cq_b, qp_type=qp_type))
    connect_pair(qp_a, qp_b)
    for i in range(TOTAL // CHUNK):
        offset = i * CHUNK
        qp_a.post_send(
            SendWR(i, sg_list=[source.sge(offset, CHUNK)], remote_addr=target.addr + offset, rkey=target.rkey)
        )
    completions = cq_a.wait(TOTAL // CHUNK, timeout_s=600)
    assert len(completions) == TOTAL // CHUNK and all(wc.ok for wc in completions), completions
    return TOTAL * 8 / completions[-1].at / 1e6


for qp_type in (QpType.MRC, QpType.RC):
    clean, lossy = run(qp_type, 0.0), run(qp_type, 0.01)
    print(f"{qp_type.value:7} no loss {clean:7.2f} Mb/s   1 % loss {lossy:7.2f} Mb/s   {lossy / clean:5.2f}")
print("ok")
