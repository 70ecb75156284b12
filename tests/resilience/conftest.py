"""Fixtures of the scripted resilience tests: a live fabric in Mininet, healed after each test.

`fabric`    the default fabric with controller and agents, shared by the tests of a module
`transfer`  starts a paced file transfer and follows it; checks the bytes that arrived by itself
"""

import hashlib
import os
from pathlib import Path

import pytest

from testbed.follow import FollowedTransfer
from testbed.program import compile_program
from topologies.net import Fabric
from topologies.plan import Plan

SIZE = 24 << 20
RATE_BPS = 40e6
"""Paced, so that there is traffic before, during and after each fault; 24 MiB last about 5 s."""
LIMIT_S = 60.0
"""Longest wait for anything: far beyond what a slow machine needs, never asserted on."""


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.root)
            item.add_marker(pytest.mark.resilience)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and raw sockets (run `make resilience`)")
    with Fabric(Plan(), tmp_path_factory.mktemp("run"), compile_program=compile_program) as fabric:
        yield fabric


class Transfer(FollowedTransfer):
    """A followed transfer of random bytes, with what tests ask of it."""

    def begin(self, folder: Path, size: int = SIZE, rate_bps: float | None = RATE_BPS) -> None:
        self.sent, self.received = folder / "sent", folder / "received"
        self.sent.write_bytes(os.urandom(size))
        self.start(self.sent, self.received, rate_bps)

    def reach(self, share: float) -> None:
        """Wait until that share of the file is acknowledged; fails when the transfer ends before."""
        assert self.wait_until(lambda: self.over or self.share >= share, LIMIT_S), f"stuck at {self.share:.0%}"
        assert not self.over, f"over before {share:.0%} was seen: {self.outcome}"

    def finish(self) -> None:
        """Wait for the end and compare the files' bytes, not what the agents say of them."""
        assert self.wait_until(lambda: self.over, LIMIT_S), f"stuck at {self.share:.0%}"
        assert self.outcome["state"] == "done", self.outcome["error"]
        assert digest(self.received) == digest(self.sent)

    def withdrawn(self, *cuts) -> None:
        """Every EV through the cut links leaves the rotation."""
        assert self.wait_until(lambda: all(cut.all_withdrawn for cut in cuts), LIMIT_S), [c.withdrawn_at for c in cuts]

    def healed(self) -> None:
        """Every EV is usable again."""
        assert self.wait_until(lambda: self.recorder.all_usable, LIMIT_S), self.bad_evs()

    def bad_evs(self) -> set[int]:
        return {ev for ev in self.recorder.evs if not self.recorder.usable(ev)}

    def ev_table(self) -> dict[int, dict]:
        """The agent's own EV table of the QP of this transfer, by EV."""
        qpn = self.outcome["qpn"] if self.outcome else None
        tables = [qp["evs"] for qp in self.agent.status()["qps"] if qpn in (None, qp["qpn"])]
        return {ev["ev"]: ev for ev in tables[-1]}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def transfer(fabric, tmp_path):
    """`transfer(source, destination)` begins one; afterwards its links are restored and its QP closed."""
    open_ones = []

    def begin(source: str = "h0", destination: str = "h2", **options) -> Transfer:
        one = Transfer(fabric, source, destination)
        open_ones.append(one)
        one.begin(tmp_path, **options)
        return one

    yield begin
    for one in open_ones:
        for cut in one.recorder.cuts:
            fabric.link(cut.link.lower.node, cut.link.upper.node, up=True)
        for qp in one.agent.status()["qps"]:
            one.agent.call("close_qp", qpn=qp["qpn"])
        one.close()


@pytest.fixture(autouse=True)
def tables_unchanged(fabric):
    """In SRv6 mode no fault changes a route: every switch's tables are what they were at start."""
    yield
    assert fabric.controller.request("verify", timeout_s=LIMIT_S)["unchanged_since_start"]


@pytest.fixture
def faults(fabric):
    """`faults()`: what the controller holds broken now, as texts."""

    def active() -> list[str]:
        return [f["location"] for f in fabric.controller.request("faults")["faults"] if f["state"] == "active"]

    return active
