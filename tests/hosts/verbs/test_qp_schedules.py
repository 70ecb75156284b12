"""Random programs over the verbs, by seed.

Whatever is posted, lost, reset or destroyed, each promise is kept.

Checked all the time: completions of a QP in posting order, a signaled request exactly one, an unsignaled one none
unless it failed; bytes of what succeeded are in place, and nothing outside the slots of a QP is touched; receives are
used in order, with the values in the order they were sent; the queues account for everything in the end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import (
    IBV_SEND_SIGNALED,
    QpAttr,
    QpCap,
    QpInitAttr,
    QpState,
    QpType,
    QueuePair,
    RecvWR,
    SendFlags,
    SendWR,
    VerbsError,
    VirtualWire,
    WcOpcode,
    WrOpcode,
    connect_pair,
)
from tests.refusals import may_raise

QPS, SLOTS, SLOT = 3, 16, 1200
DEPTH = 12


@dataclass
class Link:
    """One QP from a to b, with a stripe of both regions of its own."""

    number: int
    a: QueuePair
    b: QueuePair
    posted: deque = field(default_factory=deque)
    """(wr_id, signaled, slot, bytes) in order, not settled."""
    imms: deque = field(default_factory=deque)
    """Values sent and not received."""
    receives: deque = field(default_factory=deque)
    next_wr: int = 1
    busy_slots: set = field(default_factory=set)
    """Slots with a write that may still land."""


class Program:
    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(seed)
        self.wire = VirtualWire(
            planes=rng.choice((1, 2, 4)),
            uplinks=rng.choice((1, 2, 4)),
            delay_s=0.002,
            seed=seed,
            framed=rng.random() < 0.3,
            per_packet_s=rng.choice((0.0, 0.0001)),
        )
        self.loss = rng.choice((0.0, 0.01, 0.1))
        self.wire.filter = lambda *_: [] if rng.random() < self.loss else None
        config = Config.of(pmtu_bytes=256, timeout=14, exp_cnt=25, probe_interval_s=0.02, max_wimm=4)
        self.a, self.b = self.wire.open("a", config), self.wire.open("b", config)
        self.cq_a, self.cq_b = self.a.create_cq(4096), self.b.create_cq(4096)
        self.source = self.a.reg_mr(bytearray(QPS * SLOTS * SLOT), 0)
        self.target = self.b.reg_mr(bytearray(QPS * SLOTS * SLOT))
        self.expected_memory = bytearray(QPS * SLOTS * SLOT)
        """Bytes that the target holds where nothing is under way."""
        kind = rng.choice((QpType.MRC, QpType.MRC, QpType.MRC, QpType.RC))
        self.links = [self._link(n, kind) for n in range(QPS)]
        self.settled_count = 0

    def _link(self, number: int, kind: QpType) -> Link:
        cap = QpCap(max_send_wr=DEPTH, max_recv_wr=DEPTH)
        link = Link(
            number,
            self.a.create_qp(QpInitAttr(self.cq_a, cap=cap, qp_type=kind)),
            self.b.create_qp(QpInitAttr(self.cq_b, cap=cap, qp_type=kind)),
        )
        connect_pair(link.a, link.b)
        return link

    # ---- what a program does ----------------------------------------------------------------------------

    def act(self) -> None:
        link = self.rng.choice(self.links)
        act = self.rng.choices(
            (self.post, self.post_imm, self.receive, self.wait, self.reset, self.cut), (40, 12, 20, 22, 2, 4)
        )[0]
        act(link)

    def _free_slot(self, link: Link) -> int | None:
        free_slots = [slot for slot in range(SLOTS) if slot not in link.busy_slots]
        return self.rng.choice(free_slots) if free_slots else None

    def post(self, link: Link, imm: int | None = None) -> None:
        slot = self._free_slot(link)
        if slot is None:
            return
        offset = (link.number * SLOTS + slot) * SLOT
        data = self.rng.randbytes(self.rng.choice((0, 1, 255, 256, 257, 700, SLOT)))
        self.source.view[offset : offset + len(data)] = data
        is_signaled = self.rng.random() < 0.7
        wr = SendWR(
            link.next_wr,
            WrOpcode.IBV_WR_RDMA_WRITE,
            [self.source.sge(offset, len(data))],
            self.target.addr + offset,
            self.target.rkey,
            send_flags=IBV_SEND_SIGNALED if is_signaled else SendFlags(0),
        )
        if imm is not None:
            wr.opcode, wr.imm_data = WrOpcode.IBV_WR_RDMA_WRITE_WITH_IMM, imm
        with may_raise(VerbsError) as errors:
            link.a.post_send(wr)
        if errors:
            # The queue is full or the limit of WriteIMM in flight reached: nothing was posted
            assert link.a.outstanding == DEPTH or "max_wimm" in str(errors[0])
            return
        link.next_wr += 1
        link.busy_slots.add(slot)
        link.posted.append((wr.wr_id, is_signaled, slot, data))
        if imm is not None:
            link.imms.append(imm)

    def post_imm(self, link: Link) -> None:
        if len(link.receives) > len(link.imms):  # there is no RNR: post no more than there are receives
            self.post(link, self.rng.getrandbits(32))

    def receive(self, link: Link) -> None:
        if len(link.receives) < DEPTH:
            wr_id = self.rng.getrandbits(32)
            link.b.post_recv(RecvWR(wr_id))
            link.receives.append(wr_id)

    def wait(self, _: Link) -> None:
        self.a.run(self.rng.choice((0.0005, 0.004, 0.03)))
        self.settle()

    def cut(self, _: Link) -> None:
        evs = [row["ev"] for row in self.links[0].a.ev_states()]
        if len(evs) > 1:
            self.wire.cut(self.rng.choice(evs), cut=self.rng.random() < 0.3)

    def reset(self, link: Link) -> None:
        """Reset both ends; requests under way never complete, and may or may not have landed."""
        self.settle()
        for qp in (link.a, link.b):
            if self.rng.random() < 0.5:
                qp.modify(QpAttr(qp_state=QpState.ERROR))
        flush_completions = [wc for wc in self.cq_a.poll(4096) if wc.qp_num == link.a.qp_num]
        assert all(wc.status.name == "IBV_WC_WR_FLUSH_ERR" for wc in flush_completions)
        outstanding = [wr_id for wr_id, *_ in link.posted][len(link.posted) - len(flush_completions) :]
        assert [wc.wr_id for wc in flush_completions] == outstanding
        for qp in (link.a, link.b):
            qp.modify(QpAttr(qp_state=QpState.RESET))
        for _, _, slot, _ in link.posted:
            offset = (link.number * SLOTS + slot) * SLOT
            self.expected_memory[offset : offset + SLOT] = self.target.view[offset : offset + SLOT]
        link.posted.clear()
        link.imms.clear()
        link.receives.clear()
        link.busy_slots.clear()
        connect_pair(link.a, link.b)

    # ---- what is promised -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take all completions and hold them against what was posted."""
        by_qp = {link.a.qp_num: link for link in self.links}
        for wc in self.cq_a.poll(4096):
            assert wc.ok, wc
            link = by_qp[wc.qp_num]
            while True:
                wr_id, is_signaled, slot, data = link.posted.popleft()
                self._check_write(link, slot, data)
                if wr_id == wc.wr_id:
                    assert is_signaled and wc.byte_len == len(data)
                    break
                assert not is_signaled, "a signaled request was passed over"
        by_qp = {link.b.qp_num: link for link in self.links}
        for wc in self.cq_b.poll(4096):
            link = by_qp[wc.qp_num]
            assert wc.ok and wc.opcode is WcOpcode.IBV_WC_RECV_RDMA_WITH_IMM
            assert (wc.wr_id, wc.imm_data) == (link.receives.popleft(), link.imms.popleft())

    def _check_write(self, link: Link, slot: int, data: bytes) -> None:
        self.settled_count += 1
        offset = (link.number * SLOTS + slot) * SLOT
        assert bytes(self.target.view[offset : offset + len(data)]) == data
        self.expected_memory[offset : offset + len(data)] = data
        link.busy_slots.discard(slot)

    def finish(self) -> None:
        """Mend the wire and let everything end."""
        self.loss = 0.0
        for ev in (row["ev"] for row in self.links[0].a.ev_states()):
            self.wire.cut(ev, cut=False)
        is_done = self.a.wait_for(lambda: not any(link.a.outstanding for link in self.links), timeout_s=300)
        assert is_done, "writes do not end"
        self.settle()
        for link in self.links:
            assert not any(is_signaled for _, is_signaled, _, _ in link.posted)
            while link.posted:
                _, _, slot, data = link.posted.popleft()
                self._check_write(link, slot, data)
            assert not link.imms
        assert self.target.view == self.expected_memory, "bytes outside of what was written"
        assert self.a.get_async_event() is None and self.b.get_async_event() is None


@pytest.mark.parametrize("seed", range(60))
def test_program__keeps_every_promise(seed):
    program = Program(seed)
    for _ in range(120):
        program.act()
    program.finish()
    assert program.settled_count
