"""EV profiles: formats, profiles and their life, operations on EVs."""

import errno

import pytest

from mrc_testbed.hosts.verbs import (
    EV_UNPOPULATED,
    EvEntry,
    EvField,
    EvFormat,
    EvMode,
    EvOp,
    EvOpEntry,
    EvProfileAttr,
    EvStateMask,
    ProfileState,
    QpAttr,
    QpState,
    VerbsError,
    connect_pair,
    expand,
)
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair

INIT, OFFLINE, ONLINE = ProfileState.INIT, ProfileState.OFFLINE, ProfileState.ONLINE
EV_GOOD, EV_ASSUMED_BAD, EV_DENIED = EvStateMask.GOOD, EvStateMask.ASSUMED_BAD, EvStateMask.DENIED


def online_format(control, profile_id=1, mode=EvFormat.STEV, fields=(16, 8, 8)):
    control.modify_ev_fmt_profile(profile_id, state=OFFLINE, mode=mode, fields=fields)
    control.modify_ev_fmt_profile(profile_id, state=ONLINE)


def explicit(control, profile_id=7, evs=((0x000, 1), (0x100, 2)), **attr):
    """Set an EXPLICIT profile with these (EV, port) online."""
    online_format(control)
    control.modify_ev_profile(
        profile_id, EvProfileAttr(OFFLINE, EvMode.EXPLICIT, ev_fmt_profile_id=1, ev_count=len(evs), **attr)
    )
    entries = [EvOpEntry(EV_UNPOPULATED, EvEntry(*ev)) for ev in evs]
    control.ev_op(profile_id, EvOp.REPLACE_EV, entries)
    control.modify_ev_profile(profile_id, EvProfileAttr(ONLINE))


def test_format__life_and_limits():
    control = VerbsPair().a.device.controller
    with pytest.raises(VerbsError, match="INIT->ONLINE is no move \\(from INIT: OFFLINE\\)"):
        control.modify_ev_fmt_profile(1, state=ONLINE, mode=EvFormat.UDP, fields=[16])
    with pytest.raises(VerbsError, match="to OFFLINE it needs mode"):
        control.modify_ev_fmt_profile(1, state=OFFLINE)
    control.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFormat.UDP)
    with pytest.raises(VerbsError, match="to ONLINE it needs fields"):
        control.modify_ev_fmt_profile(1, state=ONLINE)
    with pytest.raises(VerbsError, match="its fields have 17 bits, UDP carries 16") as error:
        control.modify_ev_fmt_profile(1, fields=[9, 8])
    assert error.value.errno == errno.E2BIG
    control.modify_ev_fmt_profile(1, fields=[8, 8])
    control.modify_ev_fmt_profile(1, state=ONLINE)
    with pytest.raises(VerbsError, match="is ONLINE: take it OFFLINE to change fields"):
        control.modify_ev_fmt_profile(1, fields=[16])
    format_profile = control.query_ev_fmt_profile(1)
    assert (format_profile.state, format_profile.mode, format_profile.fields) == (ONLINE, EvFormat.UDP, [8, 8])
    control.modify_ev_fmt_profile(1, state=OFFLINE)
    control.modify_ev_fmt_profile(1, state=INIT)
    assert control.query_ev_fmt_profile(1).state is INIT


def test_profile__what_each_step_needs_is_named():
    control = VerbsPair().a.device.controller
    for attr, words in [
        (EvProfileAttr(OFFLINE), "needs mode"),
        (EvProfileAttr(OFFLINE, EvMode.EXPLICIT), "EXPLICIT needs ev_fmt_profile_id, ev_count too"),
        (EvProfileAttr(OFFLINE, EvMode.GENERATED, 1, 4), "GENERATED needs fields too"),
        (EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 4), "EV format profile 1 is not online \\(online: none\\)"),
    ]:
        with pytest.raises(VerbsError, match=words):
            control.modify_ev_profile(7, attr)
    # With a format that is online the values themselves are checked
    online_format(control)
    for attr, words in [
        (EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 0), "ev_count = 0: must be 1 to 4096"),
        (
            EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 4, ev_min_active=5),
            "ev_min_active = 5: must be 0 to ev_count = 4",
        ),
        (EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 4, ev_event_mask=EV_DENIED), "GOOD and ASSUMED_BAD only"),
        (
            EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 4, fields=[EvField(17)]),
            "EV field 0 has 17 bits, the format's has 16",
        ),
        (EvProfileAttr(OFFLINE, EvMode.GENERATED, 1, 4, fields=[EvField(8)] * 4), "4 EV fields, but the format has 3"),
    ]:
        with pytest.raises(VerbsError, match=words):
            control.modify_ev_profile(7, attr)
    control.modify_ev_profile(7, EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 4))
    with pytest.raises(VerbsError, match="4 of 4 EVs are not filled in"):
        control.modify_ev_profile(7, EvProfileAttr(ONLINE))
    with pytest.raises(VerbsError, match="has 4 EVs for its life"):
        control.modify_ev_profile(7, EvProfileAttr(ev_count=8))
    with pytest.raises(VerbsError, match="EV profile 0 is AUTO"):
        control.modify_ev_profile(0, EvProfileAttr(OFFLINE))


def test_profile__cannot_leave_while_it_is_used():
    pair = VerbsPair(connect=False)
    for side in (pair.a, pair.b):
        explicit(side.device.controller)
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    control = pair.a.device.controller
    with pytest.raises(VerbsError, match="destroy or reset these first") as error:
        control.modify_ev_profile(7, EvProfileAttr(OFFLINE))
    assert error.value.errno == errno.EBUSY
    with pytest.raises(VerbsError, match=r"used by EV profiles \[7\]"):
        control.modify_ev_fmt_profile(1, state=OFFLINE)
    pair.a.qp.modify(QpAttr(qp_state=QpState.RESET))
    control.modify_ev_profile(7, EvProfileAttr(OFFLINE))
    control.modify_ev_profile(7, EvProfileAttr(INIT))
    assert control.query_ev_profile(7).state is INIT
    with pytest.raises(VerbsError, match="EV profile 7 is INIT, needs ONLINE \\(online: 0\\)"):
        connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)


def test_explicit__a_qp_uses_exactly_these():
    pair = VerbsPair(connect=False, planes=4, uplinks=4)
    evs = ((0x001, 1), (0x103, 2), (0x202, 3))
    for side in (pair.a, pair.b):
        explicit(side.device.controller, evs=evs, ev_min_active=2)
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    assert [(row["ev"], row["plane"]) for row in pair.a.qp.ev_states()] == [(0x001, 0), (0x103, 1), (0x202, 2)]
    assert pair.a.qp.engine.paths.profile.floor == 2
    pair.a.qp.post_send(pair.write(30 * MTU))
    assert pair.a.cq.wait(timeout_s=2)[0].ok
    assert pair.a.qp.counters.plane_packets == [10, 10, 10, 0]


def test_explicit__fields_expand_packed_evs():
    """Packed EV of 4 bits: plane in the first field's low two bits, uplink in the second's."""
    pair = VerbsPair(connect=False, planes=4, uplinks=4)
    fields = [EvField(16), EvField(8, mask=0b11, max_val=3), EvField(8, mask=0b11, max_val=3)]
    for side in (pair.a, pair.b):
        explicit(side.device.controller, evs=((0b0001, 1), (0b1110, 4)), fields=fields)
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    assert [(row["ev"], row["plane"]) for row in pair.a.qp.ev_states()] == [(0x001, 0), (0x302, 3)]
    array = pair.a.device.controller.ev_op(7, EvOp.QUERY_ARRAY)
    assert [(e.ev, e.state, e.success) for e in array] == [
        (EvEntry(0b0001, 1), EV_GOOD, True),
        (EvEntry(0b1110, 4), EV_GOOD, True),
    ]


def test_explicit__none_of_them_leads_there():
    pair = VerbsPair(connect=False, uplinks=2)
    explicit(pair.a.device.controller, evs=((0x077, 1),))
    with pytest.raises(VerbsError, match="no EV of profile 7 leads to b: EV 0x0077 is no path of plane 0"):
        connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)


def test_generated__as_many_from_each_port_and_within_ranges():
    pair = VerbsPair(connect=False, planes=4, uplinks=16)
    control = pair.a.device.controller
    online_format(control, mode=EvFormat.SRV6, fields=(16, 8, 8))
    fields = [EvField(16), EvField(8, mask=0x3, max_val=3), EvField(8, mask=0xF, min_val=2, max_val=13)]
    control.modify_ev_profile(9, EvProfileAttr(OFFLINE, EvMode.GENERATED, 1, 32, fields=fields))
    control.modify_ev_profile(9, EvProfileAttr(ONLINE))
    evs = [e.ev for e in control.ev_op(9, EvOp.QUERY_ARRAY)]
    assert len(set(evs)) == 32
    assert [sum(1 for ev in evs if ev.port == port) for port in (1, 2, 3, 4)] == [8, 8, 8, 8]
    assert all(2 <= ev.val & 0xF <= 13 and ev.val >> 4 == ev.port - 1 for ev in evs)
    with pytest.raises(VerbsError, match="only EXPLICIT ones are written"):
        control.ev_op(9, EvOp.REPLACE_EV, [EvOpEntry(evs[0], EvEntry(0x12, 2))])


def test_generated__more_than_the_ranges_allow():
    control = VerbsPair().a.device.controller
    online_format(control)
    fields = [EvField(16), EvField(8, mask=0x1, max_val=1), EvField(8, mask=0x1, max_val=1)]
    control.modify_ev_profile(9, EvProfileAttr(OFFLINE, EvMode.GENERATED, 1, 5, fields=fields))
    with pytest.raises(VerbsError, match="allow 4 EVs, ev_count is 5") as error:
        control.modify_ev_profile(9, EvProfileAttr(ONLINE))
    assert error.value.errno == errno.E2BIG


def test_generated__spread_over_the_ports_given_where_the_ev_does_not_name_one():
    control = VerbsPair(planes=4).a.device.controller
    online_format(control, mode=EvFormat.UDP, fields=(16,))
    fields = [EvField(16, mask=0xFFFF, max_val=0xFFFF)]
    control.modify_ev_profile(9, EvProfileAttr(OFFLINE, EvMode.GENERATED, 1, 10, fields=fields, ports=[2, 4]))
    control.modify_ev_profile(9, EvProfileAttr(ONLINE))
    evs = [e.ev for e in control.ev_op(9, EvOp.QUERY_ARRAY)]
    assert len({ev.val for ev in evs}) == 10 and [ev.port for ev in evs] == [2, 4] * 5


def test_srv6__a_whole_address_names_plane_and_uplink():
    """The uSID stack of §8.3 as a format: plane in every uSID, uplink in the T1's.

    Read back at the T1 uSID.
    """
    pair = VerbsPair(connect=False, planes=4, uplinks=8)
    control = pair.a.device.controller
    online_format(control, mode=EvFormat.SRV6, fields=(32, 16, 16, 16, 16, 16, 16))
    fields = [
        EvField(32, 0xFCBBBB00),
        EvField(16, 0x2001, mask=0x0F00, max_val=15),
        EvField(16, 0x1000, mask=0x0FFF, max_val=0xFFF),
        EvField(16, 0x2002, mask=0x0F00, max_val=15),
        EvField(16, 0x300B, mask=0x0F00, max_val=15),
    ]
    packed = 0x3_305_3_3
    assert f"{expand(packed, fields, [32] + [16] * 6):032x}" == "fcbbbb002301130523 02330b00000000".replace(" ", "")
    control.modify_ev_profile(7, EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 1, fields=fields))
    with pytest.raises(VerbsError, match="names plane 3, but port 1 is plane 0"):
        control.ev_op(7, EvOp.REPLACE_EV, [EvOpEntry(ev_new=EvEntry(packed, 1))])
    control.ev_op(7, EvOp.REPLACE_EV, [EvOpEntry(ev_new=EvEntry(packed, 4))])
    control.modify_ev_profile(7, EvProfileAttr(ONLINE))
    assert pair.a.device.hardware.profiles.ev.evs_for(7, "b", "test") == [(0x305, 3)]


def test_generated__an_empty_list_of_ports_does_not_mean_all():
    control = VerbsPair(connect=False).a.device.controller
    online_format(control)
    attr = EvProfileAttr(OFFLINE, EvMode.GENERATED, 1, 2, fields=[EvField(8, mask=0xFF, max_val=255)], ports=[])
    with pytest.raises(VerbsError, match="EV profile 7: ports is empty"):
        control.modify_ev_profile(7, attr)


def test_auto__is_what_a_qp_without_profile_has():
    pair = VerbsPair(planes=2, uplinks=3)
    assert len(pair.a.qp.ev_states()) == 6
    control = pair.a.device.controller
    assert control.query_ev_profile(0).mode is EvMode.AUTO
    entry = EvOpEntry(EvEntry(0x102, 2))
    assert control.ev_op(0, EvOp.QUERY_STATE, [entry])[0].state is EV_GOOD
    assert control.ev_op(0, EvOp.QUERY_STATE, [EvOpEntry(EvEntry(0x107, 2))])[0].state is EvStateMask.UNKNOWN


def test_ev_op__stops_at_the_first_error_and_says_what_was_done():
    control = VerbsPair(planes=2, uplinks=4).a.device.controller
    explicit(control, evs=((0x000, 1), (0x001, 1), (0x100, 2)))
    batch = [EvOpEntry(EvEntry(*ev), state=EV_DENIED) for ev in ((0x000, 1), (0x055, 1), (0x100, 2))]
    with pytest.raises(
        VerbsError, match="ev_op MODIFY_STATE, entry 1: EV 0x55 of port 1 is not in EV profile 7"
    ) as error:
        control.ev_op(7, EvOp.MODIFY_STATE, batch)
    assert (error.value.done_count, error.value.errno) == (1, errno.ENOENT)
    assert [entry.success for entry in batch] == [True, False, False]
    assert [entry.state for entry in control.ev_op(7, EvOp.QUERY_ARRAY)] == [EV_DENIED, EV_GOOD, EV_GOOD]
    with pytest.raises(VerbsError, match="can be made GOOD or DENIED"):
        control.ev_op(7, EvOp.MODIFY_STATE, [EvOpEntry(EvEntry(0x000, 1), state=EV_ASSUMED_BAD)])
    with pytest.raises(VerbsError, match="at most 4096 a call"):
        control.ev_op(7, EvOp.QUERY_STATE, [EvOpEntry()] * 5000)
    with pytest.raises(VerbsError, match="no EV profile 8 \\(has: 0, 7\\)"):
        control.ev_op(8, EvOp.QUERY_ARRAY)


def test_ev_op__replace_one_or_all_copies():
    control = VerbsPair(planes=2, uplinks=4).a.device.controller
    online_format(control)
    control.modify_ev_profile(7, EvProfileAttr(OFFLINE, EvMode.EXPLICIT, 1, 3))
    control.ev_op(7, EvOp.REPLACE_EV, [EvOpEntry(ev_new=EvEntry(0x001, 1), all_copies=True)])
    assert [e.ev for e in control.ev_op(7, EvOp.QUERY_ARRAY)] == [EvEntry(0x001, 1)] * 3
    control.ev_op(7, EvOp.REPLACE_EV, [EvOpEntry(EvEntry(0x001, 1), EvEntry(0x100, 2))])
    assert [e.ev for e in control.ev_op(7, EvOp.QUERY_ARRAY)] == [
        EvEntry(0x100, 2),
        EvEntry(0x001, 1),
        EvEntry(0x001, 1),
    ]
    control.modify_ev_profile(7, EvProfileAttr(ONLINE))
    with pytest.raises(VerbsError, match="EVs are replaced OFFLINE") as error:
        control.ev_op(7, EvOp.REPLACE_EV, [EvOpEntry(EvEntry(0x001, 1), EvEntry(0x002, 1))])
    assert error.value.errno == errno.EBUSY


def test_ev_op__denied_before_and_after_a_qp_connects():
    pair = VerbsPair(connect=False, planes=2, uplinks=4)
    evs = tuple((plane << 8 | uplink, plane + 1) for plane in (0, 1) for uplink in range(4))
    for side in (pair.a, pair.b):
        explicit(side.device.controller, evs=evs)
    control = pair.a.device.controller
    control.ev_op(7, EvOp.MODIFY_STATE, [EvOpEntry(EvEntry(0x002, 1), state=EV_DENIED)])
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    control.ev_op(7, EvOp.MODIFY_STATE, [EvOpEntry(EvEntry(0x103, 2), state=EV_DENIED)])
    pair.a.qp.post_send(pair.write(60 * MTU))
    assert pair.a.cq.wait(timeout_s=2)[0].ok
    sent = {row["ev"]: row["sent"] for row in pair.a.qp.ev_states()}
    assert sent[0x002] == sent[0x103] == 0 and sum(sent.values()) >= 60
    control.ev_op(7, EvOp.MODIFY_STATE, [EvOpEntry(EvEntry(0x002, 1), state=EV_GOOD)])
    assert control.ev_op(7, EvOp.QUERY_STATE, [EvOpEntry(EvEntry(0x002, 1))])[0].state is EV_GOOD
