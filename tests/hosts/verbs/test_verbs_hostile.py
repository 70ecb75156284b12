"""Nonsense given to the verbs.

Refused with a message of ours, never a traceback from inside, and nothing changes.
"""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest

from mrc_testbed.hosts.verbs import (
    AddressVector,
    EpRequest,
    EvEntry,
    EvField,
    EvFormat,
    EvMode,
    EvOp,
    EvOpEntry,
    EvProfileAttr,
    EvStateMask,
    LocalError,
    MrcQpAttr,
    ProfileState,
    QpAttr,
    QpCap,
    QpHintAttr,
    QpInitAttr,
    QpState,
    RecvWR,
    SendFlags,
    SendWR,
    Sge,
    VerbsError,
    connect_pair,
)
from tests.hosts.verbs.verbs_devices import VerbsPair
from tests.refusals import may_raise

JUNK = (
    None, 0, 1, -1, 2, 3, 7, 255, 256, 4096, 1 << 16, 1 << 24, 1 << 32, 1 << 64, -(1 << 70), 1.5, float("nan"), True,
    "", "x", b"", b"abc", [], [1], (), {}, object(), AddressVector("b"),
    AddressVector("nobody"), AddressVector(3),
    QpState.RTR, QpState.ERROR, *ProfileState, *EvMode, *EvFormat, EvStateMask.GOOD, [EvField(4)], [EvField(4, mask=3)],
    [16], [8, 8], EvEntry(1, 1), EvEntry(-1, 9), SendFlags(255),
)  # fmt: skip


def junk(rng: Random):
    return rng.choice(JUNK)


@pytest.mark.parametrize("seed", range(20))
def test_modify_qp__of_nonsense(seed):
    rng, pair = Random(seed), VerbsPair(connect=False)
    for _ in range(100):
        first_state = pair.a.qp.state
        attr = QpAttr(**{f.name: junk(rng) for f in fields(QpAttr) if rng.random() < 0.2})
        mrc = MrcQpAttr(**{f.name: junk(rng) for f in fields(MrcQpAttr) if rng.random() < 0.2})
        masks = (None, None) if rng.random() < 0.7 else (junk(rng), junk(rng))
        with may_raise(LocalError) as errors:
            pair.a.qp.modify(attr, masks[0], mrc, masks[1])
        if errors:
            assert str(errors[0]) and pair.a.qp.state is first_state
    pair.a.qp.modify(QpAttr(qp_state=QpState.RESET))
    connect_pair(pair.a.qp, pair.b.qp)
    pair.a.qp.post_send(pair.write())
    assert pair.a.cq.wait(timeout_s=1)[0].ok


@pytest.mark.parametrize("seed", range(20))
def test_post__of_nonsense(seed):
    rng, pair = Random(seed), VerbsPair()
    for _ in range(100):
        wr = SendWR(**{f.name: junk(rng) for f in fields(SendWR) if rng.random() < 0.3})
        if rng.random() < 0.3:
            wr.sg_list = [Sge(junk(rng), junk(rng), rng.choice((pair.a.mr.lkey, junk(rng))))]
        wr.rkey = wr.rkey if isinstance(wr.rkey, int) and wr.rkey > 1 << 32 else pair.b.mr.rkey
        wr.remote_addr = (
            wr.remote_addr if isinstance(wr.remote_addr, int) and wr.remote_addr > 1 << 63 else pair.b.mr.addr
        )
        for post, request in (
            (pair.a.qp.post_send, wr),
            (pair.a.qp.post_send, junk(rng)),
            (pair.b.qp.post_recv, junk(rng)),
        ):
            with may_raise(LocalError) as errors:
                post(request)
            assert all(map(str, errors))
        pair.b.qp.post_recv(RecvWR(1)) if rng.random() < 0.1 else None
        pair.a.device.run(0.05)
        pair.a.cq.poll(1000), pair.b.cq.poll(1000)
        if pair.a.qp.state is not QpState.RTS:  # a WriteIMM may have found no receive: that is the rule
            for side in (pair.a, pair.b):
                side.qp.modify(QpAttr(qp_state=QpState.RESET))
            connect_pair(pair.a.qp, pair.b.qp)


@pytest.mark.parametrize("seed", range(20))
def test_controller__of_nonsense(seed):
    rng, pair = Random(seed), VerbsPair()
    control = pair.a.device.controller
    ids = (0, 1, 2, 7)

    def attr():
        return EvProfileAttr(**{f.name: junk(rng) for f in fields(EvProfileAttr) if rng.random() < 0.3})

    def entry():
        return EvOpEntry(**{f.name: junk(rng) for f in fields(EvOpEntry) if rng.random() < 0.4})

    def number():
        return rng.choice(ids) if rng.random() < 0.8 else junk(rng)

    calls = (
        lambda: control.modify_ev_fmt_profile(number(), state=junk(rng), mode=junk(rng), fields=junk(rng)),
        lambda: control.modify_ev_profile(number(), attr()),
        lambda: control.modify_ev_profile(number(), EvProfileAttr(ProfileState.OFFLINE, EvMode.EXPLICIT, 1, 2)),
        lambda: control.modify_ev_fmt_profile(1, state=ProfileState.OFFLINE, mode=EvFormat.STEV, fields=[8, 8]),
        lambda: control.modify_ev_fmt_profile(1, state=ProfileState.ONLINE),
        lambda: control.ev_op(number(), rng.choice((*EvOp, junk(rng))), [entry() for _ in range(3)]),
        lambda: control.ev_op(number(), rng.choice(tuple(EvOp)), junk(rng)),
        lambda: control.modify_cc_profile(number(), state=junk(rng), algorithm=junk(rng), gamma=junk(rng)),
        lambda: control.query_ev_profile(number()),
        lambda: control.query_cc_profile(number()),
        lambda: control.modify_port(junk(rng), junk(rng)),
        lambda: control.create_ev_event_cq(junk(rng)),
        lambda: control.ep_op([EpRequest(*(junk(rng) for _ in range(6)))], timeout_ns=1000),
        lambda: control.ep_op([EpRequest(1, "b", 0, 1)], op=junk(rng), dscp=junk(rng), timeout_ns=junk(rng)),
        lambda: pair.a.device.create_qp_hint(QpHintAttr(junk(rng), junk(rng), junk(rng), junk(rng))),
        lambda: pair.a.cq.ack_events(junk(rng)),
        lambda: pair.a.device.ack_async_event(junk(rng)),
        lambda: pair.a.device.create_qp(QpInitAttr(pair.a.cq, junk(rng), pd=junk(rng), send_ops_flags=junk(rng))),
        lambda: pair.a.device.create_qp(QpInitAttr(junk(rng), protocol_version=junk(rng))),
        lambda: pair.a.device.create_cq(junk(rng)),
        lambda: pair.a.device.reg_mr(junk(rng), junk(rng)),
        lambda: pair.a.device.create_qp(QpInitAttr(pair.a.cq, cap=QpCap(max_send_wr=junk(rng)))),
        lambda: pair.a.device.query_port(junk(rng)),
    )
    for _ in range(200):
        with may_raise(LocalError) as errors:
            rng.choice(calls)()
        assert all(map(str, errors))
    # Ports may have been taken down by the calls: with them up, the QP works as before
    for port in (1, 2):
        control.modify_port(port, True)
    pair.a.qp.post_send(pair.write())
    assert pair.a.cq.wait(timeout_s=30)[0].ok


def test_field__of_nonsense():
    rng = Random(1)
    for _ in range(2000):
        with may_raise(VerbsError) as errors:
            EvField(junk(rng), junk(rng), junk(rng), junk(rng), junk(rng))
        assert all(map(str, errors))
