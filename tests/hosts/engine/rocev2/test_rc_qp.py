"""Queue pairs of the RoCEv2 RC baseline: made, connected and aborted, and what is of MRC alone."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.hosts.engine.qp import EngineQpState
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from tests.hosts.engine.engine_pair import MTU
from tests.hosts.engine.rocev2.rocev2_pair import RcPair


def test_both_directions_at_once():
    pair = RcPair(framed=True)
    memory = bytearray(20 * MTU)
    region = pair.a.endpoint.register(memory)
    forward_data, reverse_data = pair.bytes(20 * MTU), pair.bytes(20 * MTU)
    pair.write(forward_data)
    pair.b.qp.post_write(reverse_data, region.va, region.rkey, now=pair.now)
    pair.run_until_quiet()
    assert bytes(pair.memory[: len(forward_data)]) == forward_data and bytes(memory) == reverse_data
    assert [e.status for e in pair.events_of(Completion, "b")] == [Status.SUCCESS]


@pytest.mark.parametrize("choice,distinct", [("spread", 4), ("random", None)])
def test_many_qps__each_keeps_one_path(choice: str, distinct: int | None):
    endpoint = Endpoint("a", planes=2, seed=1)
    evs = [(0x000, 0), (0x001, 0), (0x100, 1), (0x101, 1)]
    paths = []
    for _ in range(4):
        qp = endpoint.create_qp(transport="rocev2", settings=RcConfig(ev_choice=choice))
        qp.connect("b", qp.attributes(), evs, 0.0)
        paths.append(qp.path)
    assert set(paths) <= set(evs)
    assert distinct is None or len(set(paths)) == distinct
    assert all(row["state"] == "good" for row in qp.ev_states())
    endpoint.destroy_qp(qp.qpn)


def test_create_qp__unknown_transport_lists_what_there_is():
    with pytest.raises(LocalError, match="has: mrc, rocev2"):
        Endpoint("a", planes=1, seed=1).create_qp(transport="tcp")


def test_connect__the_other_transport_is_refused():
    a, b = Endpoint("a", planes=1, seed=1), Endpoint("b", planes=1, seed=2)
    mrc, rc = a.create_qp(), b.create_qp(transport="rocev2")
    for qp, peer_qp, endpoint in ((mrc, rc, a), (rc, mrc, b)):
        with pytest.raises(LocalError, match="make both alike"):
            qp.connect("x", type(peer_qp.attributes()).from_json(peer_qp.attributes().to_json()), [(0, 0)], 0.0)
        assert qp.state is EngineQpState.INIT and not endpoint.transmit(0.0)
    attributes = rc.attributes().to_json()
    del attributes["transport"]
    mrc.connect("x", type(mrc.attributes()).from_json(attributes), [(0, 0)], 0.0)


def test_what_is_mrcs_alone__is_refused_in_words():
    pair = RcPair()
    for call in (
        lambda: pair.a.qp.set_penalty(64),
        lambda: pair.a.qp.set_mpr(128),
        lambda: pair.a.qp.deny(pair.ev, now=0.0),
        lambda: pair.a.qp.connect("b", pair.b.qp.attributes(), pair.evs, 0.0),
    ):
        with pytest.raises(LocalError):
            call()
    assert pair.a.qp.cc_state()["control"] == "window"
    pair.a.qp.abort("enough", 0.0)
    assert pair.a.qp.state is EngineQpState.ERROR


def test_abort__before_connect_has_nothing_to_flush():
    qp = Endpoint("a", planes=1, seed=1).create_qp(transport="rocev2")
    qp.abort("not needed", 0.0)
    assert qp.state is EngineQpState.ERROR and qp.error == "not needed"
