#!/usr/bin/env python3
"""Messages with immediate values into a receive queue, over a path that fails.

The receiver waits by file descriptor. It arms its CQ for solicited completions only, so it wakes once per batch.
The EV event queue shows the state of the paths. Virtual time: `python examples/write_imm_events.py`
"""

import select

from mrc_testbed.hosts.verbs import (
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    QpInitAttr,
    RecvWR,
    SendWR,
    VirtualWire,
    connect_pair,
)

BATCHES, BLOCK = 12, 16_384

wire = VirtualWire(planes=2, uplinks=4, delay_s=0.002, seed=5)
a, b = wire.open("a"), wire.open("b")
source, target = a.reg_mr(bytearray(BLOCK)), b.reg_mr(bytearray(BATCHES * BLOCK))
channel = b.create_comp_channel()
cq_a, cq_b = a.create_cq(256), b.create_cq(256, channel=channel)
qp_a, qp_b = a.create_qp(QpInitAttr(cq_a)), b.create_qp(QpInitAttr(cq_b))
connect_pair(qp_a, qp_b)
ev_events = a.controller.create_ev_event_cq()

qp_b.post_recv(RecvWR(wr_id=100 + i) for i in range(BATCHES))
for batch in range(BATCHES):
    if batch == 4:
        wire.cut(0x102)  # plane 1, uplink 2: silent loss from here on
    if batch == 8:
        wire.cut(0x102, cut=False)
    cq_b.req_notify(solicited_only=True)
    # Three quarters as plain writes, the rest with the immediate value that says the batch is complete.
    address, part = target.addr + batch * BLOCK, BLOCK // 4
    for i in range(3):
        element = [source.sge(i * part, part)]
        qp_a.post_send(SendWR(i, IBV_WR_RDMA_WRITE, element, address + i * part, target.rkey, send_flags=0))
    last = SendWR(3, IBV_WR_RDMA_WRITE_WITH_IMM, [source.sge(3 * part, part)], address + 3 * part, target.rkey, batch)
    last.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED
    qp_a.post_send(last)
    assert channel.get_event(timeout_s=5.0) is cq_b
    cq_b.ack_events()
    assert not select.select([channel], [], [], 0)[0]  # announced once, taken once
    [received] = cq_b.poll()
    assert (received.imm_data, received.wr_id) == (batch, 100 + batch)
    assert cq_a.wait(timeout_s=5.0)[0].ok
    for event in ev_events.poll():
        print(f"{event.at * 1000:6.1f} ms  EV {event.ev.val:#05x} of port {event.ev.port}: {event.state.name}")

for event in ev_events.wait(timeout_s=10.0):
    print(f"{event.at * 1000:6.1f} ms  EV {event.ev.val:#05x} of port {event.ev.port}: {event.state.name}")
counters = qp_a.counters
print(f"{BATCHES} batches, {counters.packets_sent} packets, {counters.lost} lost, {counters.retransmitted} sent again")
print("ok")
