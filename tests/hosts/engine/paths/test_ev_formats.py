"""EVs of the three routing modes (mrc-protocol §8), and the denylist (§5.13)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import EvChanged, EvReplaced
from mrc_testbed.hosts.engine.paths.ev import EvProfile
from mrc_testbed.hosts.engine.paths.ev_formats import (
    EcmpFormat,
    EvFormatError,
    Srv6Format,
    StructuredFormat,
    distinct_on_ipv4,
)
from mrc_testbed.hosts.engine.paths.ev_state import EvState
from mrc_testbed.hosts.engine.wire.packets import EndpointResponse
from mrc_testbed.topologies.plan import ev_plane, ev_uplink, make_ev
from tests.hosts.engine.engine_pair import MTU, Pair, make_evs

# ---- formats ----------------------------------------------------------------------------------------------


def test_srv6__the_worked_example_of_8_3() -> None:
    srv6 = Srv6Format()
    assert srv6.pack(3, 5) == 0x305 and srv6.pack(3, 5, tag=1) == 0x10305
    assert (srv6.plane(0x10305), srv6.uplink(0x10305)) == (3, 5)


def test_srv6__is_what_the_plan_uses() -> None:
    for ev, plane in Srv6Format().evs(range(4), range(8)):
        assert ev == make_ev(ev_plane(ev), ev_uplink(ev)) and plane == ev_plane(ev)


def test_srv6__other_widths() -> None:
    wide_format = Srv6Format(plane_bits=4, uplink_bits=12)
    assert (
        wide_format.pack(15, 4095) == 0xFFFF and wide_format.plane(0xF123) == 15 and wide_format.uplink(0xF123) == 0x123
    )


def test_structured__first_hop_in_the_most_significant_bits() -> None:
    stev = StructuredFormat(widths=(10, 8, 4), plane_bits=8)
    ev = stev.pack(2, (0x3FF, 0x81, 0x9))
    assert ev == 0x3FF << 22 | 0x81 << 14 | 0x9 << 10 | 2
    assert [stev.field(ev, tier) for tier in range(3)] == [0x3FF, 0x81, 0x9] and stev.plane(ev) == 2
    assert stev.pack(0, (1,)) == 1 << 22


def test_structured__every_combination_once_on_every_plane() -> None:
    evs = StructuredFormat().evs(range(2), [range(3), range(2)])
    assert len(evs) == len({ev for ev, _ in evs}) == 12
    assert not distinct_on_ipv4(evs)


@pytest.mark.parametrize("bits", [16, 32])
def test_ecmp__random_distinct_and_the_same_number_on_each_plane(bits: int) -> None:
    evs = EcmpFormat(bits).evs(range(4), 32, Random(1))
    assert len({ev for ev, _ in evs}) == 128 and max(ev for ev, _ in evs) < 1 << bits
    assert Counter(plane for _, plane in evs) == dict.fromkeys(range(4), 32)
    assert evs == EcmpFormat(bits).evs(range(4), 32, Random(1)) != EcmpFormat(bits).evs(range(4), 32, Random(2))
    assert bits == 32 or distinct_on_ipv4(evs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Srv6Format().pack(256, 0),
        lambda: Srv6Format().pack(0, -1),
        lambda: Srv6Format(20, 20),
        lambda: StructuredFormat((16, 16), 8),
        lambda: StructuredFormat(()),
        lambda: StructuredFormat().pack(0, (1, 2, 3, 4)),
        lambda: StructuredFormat().pack(0, (1024,)),
        lambda: EcmpFormat(20),
        lambda: EcmpFormat(16).evs(range(4), 1 << 15, Random(1)),
        lambda: EcmpFormat().evs([], 5, Random(1)),
    ],
)
def test_formats__what_does_not_fit_is_refused(make: object) -> None:
    with pytest.raises(EvFormatError):
        make()


@pytest.mark.parametrize("mode", ["structured", "ecmp", "ecmp16"])
@pytest.mark.parametrize("layout", ["L", "H"])
def test_transfer__with_the_evs_of_any_mode(mode: str, layout: str) -> None:
    """The wire of the tests knows paths by (plane, EV): the engine must never take the plane from the EV."""
    evs = {
        "structured": StructuredFormat().evs(range(3), [range(4)]),
        "ecmp": EcmpFormat().evs(range(3), 4, Random(1)),
        "ecmp16": EcmpFormat(16).evs(range(3), 4, Random(1)),
    }[mode]
    pair = Pair(planes=3, evs=evs, framed=True, config={"ev_layout": layout, "cwnd_bytes": 8000})
    ev, plane = evs[5]
    pair.path("a", ev, plane).cut = True
    data = pair.bytes(100 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    assert {row["ev"] for row in pair.a.qp.ev_states() if row["state"] == "assumed_bad"} <= {ev}
    assert all((line.packet.ev, line.packet.plane) in evs for line in pair.sent())


# ---- denylist ---------------------------------------------------------------------------------------------


def test_denylist__is_denied_from_the_start_and_replaced_within_its_plane() -> None:
    for seed in range(10):
        profile = EvProfile(make_evs(2, 8), Config(), Random(seed), denied=[0x000, 0x103, 0x104, 0xDEAD])
        active = [ev for ev in profile if ev.active]
        assert {ev.value for ev in profile if ev.state is EvState.DENIED} == {0x000, 0x103, 0x104}
        assert Counter(ev.plane for ev in active) == {0: 6, 1: 6}, "six slots of eight, as without the list"
        assert all(ev.state is EvState.GOOD for ev in active)


def test_denylist__more_than_the_backups_leaves_slots_empty_and_no_floor_holds() -> None:
    profile = EvProfile(make_evs(2, 4), Config(), Random(1), denied=[0x000, 0x001, 0x002, 0x003, 0x101, 0x102])
    assert profile.active_count == 2
    assert {profile.choose(~0).plane for _ in range(10)} == {1}


def test_deny_and_allow__at_run_time() -> None:
    pair = Pair(planes=2, uplinks=4, denied=[0x002], config={"cwnd_bytes": 8000})
    assert pair.state(0x002) == "denied"
    active = [row["ev"] for row in pair.a.qp.ev_states() if row["active"] and row["plane"] == 0]
    pair.a.qp.deny(active[0], now=0.0)
    pair.a.qp.deny(active[1], now=0.0)
    pair.write(pair.bytes(100 * MTU))
    pair.run_until_quiet()
    used_evs = {line.packet.ev for line in pair.sent()}
    assert not used_evs & {0x002, active[0], active[1]}
    assert [e.cause for e in pair.events_of(EvChanged)] == ["the controller denied it"] * 2
    assert all(e.substitute is None for e in pair.events_of(EvReplaced)), (
        "the one backup went into the place of the denied one"
    )
    pair.a.qp.allow(0x002, now=pair.now)
    assert pair.state(0x002) == "good"
    assert 0x002 in [row["ev"] for row in pair.a.qp.ev_states() if row["active"]]
    with pytest.raises(LocalError, match="no EV 0x999"):
        pair.a.qp.deny(0x999, now=pair.now)


def test_deny__everything_waits_and_goes_on_when_allowed() -> None:
    pair = Pair(planes=2, uplinks=2, config={"linear_cnt": 1, "exp_cnt": 1})
    for ev, _ in pair.evs:
        pair.a.qp.deny(ev, now=0.0)
    data = pair.bytes(2000)
    pair.write(data)
    pair.run(30.0)
    assert pair.sent() == [] and pair.a.qp.state.value == "rts"
    pair.a.qp.allow(0x001, now=pair.now)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_denied__is_never_probed_and_never_comes_back_by_itself() -> None:
    pair = Pair(planes=2, uplinks=2, denied=[0x001], config={"cwnd_bytes": 8000})
    pair.cut(0x100)
    pair.write(pair.bytes(100 * MTU))
    pair.run(3.0)
    assert pair.state(0x001) == "denied"
    packets = [line.packet for line in pair.log if line.source == "a" and not isinstance(line.packet, EndpointResponse)]
    assert 0x001 not in {packet.ev for packet in packets}, "b, who denies nothing, asks how its paths are"
