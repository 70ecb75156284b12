"""EV probes over every path to a peer, round after round: what mrc-ping does inside the agent.

Probes of a round are spread over the interval, so that they do not queue behind each other and each measures its own
path. A probe needs no QP (mrc-protocol §6.10). A `probe` event reports the outcome of one:

    rtt_s   round trip over this path; null when no answer came back over it
    out     true: the probe arrived at the peer
    back    true: the answer came back over the same path; false: over another one only; null: no answer
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from mrc_testbed.hosts.agent.connections import QpUseError
from mrc_testbed.hosts.agent.path_health import uplink_of
from mrc_testbed.hosts.agent.services.local_end import LocalEnd
from mrc_testbed.hosts.engine.events import EvProbeResult
from mrc_testbed.ipc.requests import Request
from mrc_testbed.ipc.rpc import Message, ServerConnection, event_of
from mrc_testbed.ipc.service import wait_until

MAX_COUNT = 1 << 20
MAX_EVS = 1 << 16
EvPlane = tuple[Annotated[int, Meta(ge=0, le=0xFFFFFFFF)], Annotated[int, Meta(ge=0, le=31)]]
SPREAD = 0.5
"""Share of the interval over which the probes of a round leave."""


class EvSweepRequest(Request, tag="ev_sweep"):
    """Probe in `count` rounds (0: until stopped), `interval_s` apart, waiting `wait_s` for each answer.

    `evs`: [EV, plane] of each path to probe; None: those that a new QP would have.
    """

    peer: str
    evs: Annotated[list[EvPlane], Meta(min_length=1, max_length=MAX_EVS)] | None = None
    count: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 4
    interval_s: Annotated[float, Meta(ge=0.001, le=3600)] = 0.2
    wait_s: Annotated[float, Meta(ge=0.001, le=60)] = 1.0


class EvPing:
    """One EvSweepRequest under way, for one client."""

    def __init__(self, local: LocalEnd, client: ServerConnection, request: EvSweepRequest) -> None:
        self._local, self._client = local, client
        self.peer = local.connections.peer_host(request.peer)
        self.count, self.interval_s, self.wait_s = request.count, request.interval_s, request.wait_s
        plan = local.connections.plan
        self._evs = request.evs or plan.ev_planes(local.connections.host, self.peer)
        if unknown := [plane for _, plane in self._evs if plane >= plan.planes]:
            raise QpUseError(f"evs: no plane {unknown[0]} (has: 0 to {plan.planes - 1})")
        self._waiting: set[int] = set()
        self._news = asyncio.Event()
        self._stopped = False

    def stop(self) -> None:
        """Send no more; probes in flight are not waited for."""
        self._stopped = True
        self._news.set()

    async def run(self, on_start: Callable[[Message], None]) -> str:
        """Run the whole sweep; `on_start(fields)` answers the client. Returns done or stopped."""
        clock = asyncio.get_running_loop().time
        on_start({"host": self._local.host, "peer": self.peer.name, "evs": [list(pair) for pair in self._evs]})
        gap = self.interval_s * SPREAD / len(self._evs)
        start, number = clock(), 0
        try:
            while not self._stopped and (number < self.count or not self.count):
                for index, (ev, plane) in enumerate(self._evs):
                    await self._sleep_until(start + number * self.interval_s + index * gap)
                    if self._stopped:
                        break
                    self._probe(ev, plane, number)
                number += 1
            while self._waiting and not self._stopped:
                await wait_until(self._news, None)
        finally:
            for request_id in self._waiting:
                self._local.connections.forget_probe(request_id)
        return "stopped" if self._stopped else "done"

    async def _sleep_until(self, time: float) -> None:
        clock = asyncio.get_running_loop().time
        while not self._stopped and clock() < time:
            await wait_until(self._news, time)

    def _probe(self, ev: int, plane: int, number: int) -> None:
        connections = self._local.connections
        is_up = self._local.is_port_up(plane)

        def on_result(result: EvProbeResult) -> None:
            self._waiting.discard(result.request_id)
            out, lost = result.rtt_s is not None, result.back_lost
            fields = {
                "round": number,
                "ev": ev,
                "plane": plane,
                "port_up": is_up,
                "uplink": uplink_of(connections.plan, connections.host, self.peer, ev),
                "rtt_s": None if lost else result.rtt_s,
                "out": out,
                "back": not lost if out else None,
            }
            self._client.send(event_of("probe", result.at, fields))
            self._news.set()

        self._waiting.add(connections.probe(self.peer, ev, plane, self.wait_s, on_result))
