"""Profiles of a device: common to its contexts, and there after the one that wrote them is closed."""

import pytest

from mrc_testbed.hosts.verbs import EvMode, EvProfileAttr, ProfileState, QpState, VerbsError
from tests.hosts.verbs.verbs_devices import Program, VerbsPair

OFFLINE, ONLINE = ProfileState.OFFLINE, ProfileState.ONLINE


def test_profiles__are_the_devices_and_outlive_the_context_that_wrote_them():
    pair = VerbsPair(connect=False, planes=2)
    for device in (pair.a.device, pair.b.device):
        writer = device.open_context()
        writer.controller.modify_ev_profile(7, EvProfileAttr(OFFLINE, EvMode.AUTO))
        writer.controller.modify_ev_profile(7, EvProfileAttr(ONLINE))
        writer.controller.modify_cc_profile(3, state=OFFLINE, algorithm=None)
        writer.controller.modify_cc_profile(3, state=ONLINE)
        writer.close()
    program = Program(pair, ev_profile_id=7, cc_profile_id=3)
    assert program.qp.state is QpState.RTS
    controller = pair.a.device.controller
    with pytest.raises(VerbsError, match="EV profile 7 is used by 1 QPs"):
        controller.modify_ev_profile(7, EvProfileAttr(OFFLINE))
    program.context.close()
    controller.modify_ev_profile(7, EvProfileAttr(OFFLINE))
    assert controller.query_ev_profile(7).state is OFFLINE
    assert controller.query_cc_profile(3)[0] is ONLINE
