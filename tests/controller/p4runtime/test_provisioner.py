"""Counts of a provisioner that brings a switch in line.

The switch is a list of entries in memory.
"""

import asyncio

import pytest

from mrc_testbed.controller.config import SwitchAddress
from mrc_testbed.controller.p4runtime.provisioner import SwitchProvisioner
from mrc_testbed.controller.p4runtime.pruning import live_entries
from mrc_testbed.controller.reconvergence import PlaneFailures
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=1)
SWITCH = PLAN.switch("p0-t1-1")


class SwitchInMemory:
    """Calls of a session on its switch; `on_read` is called before the first read is answered."""

    def __init__(self, catalog, entries, on_read=lambda: None):
        self.cookie, self.entries, self.on_read = catalog.cookie, list(entries), on_read

    async def pipeline_cookie(self):
        return self.cookie

    async def read(self):
        self.on_read()
        self.on_read = lambda: None
        return list(self.entries)

    async def write(self, updates):
        for update in updates:
            self.entries.append(next(entry for entry in self.known_entries if entry.entity == update.entity))

    async def subscribe_digests(self):
        pass


@pytest.mark.parametrize("begins_with", [0, 1])
def test_writes__a_port_that_comes_back_meanwhile_is_no_write_of_a_restart(srv6, begins_with):
    """A live test found this: its switch got its two ports back one after the other: one entry too many."""
    failures = PlaneFailures(down_links=frozenset(link for link in PLAN.links if SWITCH.name in link.ends))
    entries = live_entries(PLAN, "srv6", SWITCH, srv6, failures)
    assert len(entries) == 2
    target = SwitchAddress(SWITCH, "127.0.0.1:1", 1, None, ())
    provisioner = SwitchProvisioner(target, srv6, lambda _: None)
    provisioner.status.start_digest = "of the first verification"
    provisioner.want_live(entries)
    switch = SwitchInMemory(srv6, entries[:begins_with], lambda: provisioner.want_live(entries[:1]))
    switch.known_entries = entries
    asyncio.run(provisioner._bring_in_line(switch))
    assert provisioner.status.writes_after_start == {}
    assert provisioner.status.live_writes == {"dead port": 2 - begins_with}
    assert provisioner.status.verified
