"""Queue counters as a source: drops that are told, and those from before."""

import asyncio
from types import SimpleNamespace

from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.p4runtime.provisioner import SwitchState
from mrc_testbed.controller.sources.queue_drops import QueueDropSource
from mrc_testbed.topologies.plan import Plan
from tests.controller.sources.peers import running, wait_until

PLAN = Plan(planes=1, racks=3, spines=2, hosts_per_rack=2)


class FakeKeeper:
    """A switch whose cells of `drops` are given; an exception among them is raised."""

    def __init__(self, plan, name, cells):
        self.target = SimpleNamespace(switch=plan.switch(name), name=name, gnmi=None)
        self.status = SimpleNamespace(state=SwitchState.VERIFIED, connected=True)
        self.cells_now = cells
        self.requests = []

    async def cells(self, counter, cells):
        self.requests.append((counter, cells))
        if isinstance(self.cells_now, Exception):
            raise self.cells_now
        return dict(self.cells_now)


def test_counters__a_queue_that_drops_is_told_and_old_drops_are_not(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        provisioner = FakeKeeper(PLAN, "p0-t0-1", {9 << 9 | 1: 500, 8 << 9 | 2: 7})
        source = QueueDropSource([provisioner], faults, lambda: None)
        async with running(source):
            source.request_read()
            await wait_until(lambda: len(provisioner.requests) == 1)
            assert provisioner.requests[0] == (
                "drops",
                [reason << 9 | port for reason in (8, 9) for port in (1, 2, 3, 4)],
            )
            provisioner.cells_now[9 << 9 | 1] += 3
            provisioner.cells_now[9 << 9 | 77] = 3  # a port that nobody has
            source.request_read()
            await wait_until(lambda: source.ports)
            assert source.to_json()["full_queues"] == ["p0-t0-1-eth1"]
            provisioner.cells_now = SwitchError("it went", retry=True)
            source.request_read()
            await wait_until(lambda: source.errors == 1)

    asyncio.run(story())
