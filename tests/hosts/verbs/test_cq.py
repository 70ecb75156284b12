"""Completion queues that overrun."""

import pytest

from mrc_testbed.hosts.verbs import (
    IBV_EVENT_CQ_ERR,
    VerbsError,
)
from tests.hosts.verbs.verbs_devices import VerbsPair


def test_cq__overrun_is_told_once_and_at_the_poll_after_the_last_entry():
    pair = VerbsPair(cqe=2)
    pair.a.qp.post_send(pair.write(wr_id=i) for i in range(4))
    pair.a.device.run(1.0)
    assert pair.a.device.get_async_event().event_type is IBV_EVENT_CQ_ERR
    assert [wc.wr_id for wc in pair.a.cq.poll()] == [0, 1]
    with pytest.raises(VerbsError, match="more completions than the 2 that the CQ holds"):
        pair.a.cq.poll()
