"""Counters of switches since their start: P4 counters, full queues, cables that lose; on both targets.

    fabric.target.counts({"trimmed": [0, 512]}, depths=["p0-t0-0-eth1"])

`cells`: by the name of a P4 counter, offsets; each is answered by the packets in the cells offset + port of all ports
of a switch. What a target cannot tell is None, never 0. Made to be asked many times a second: embedded switches answer
all at once over their control socket, each BMv2 over P4Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from grpc.experimental import ChannelOptions

from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.ipc.rundir import FabricError, RunDir
from mrc_testbed.topologies.lab.cables import Cables
from mrc_testbed.topologies.lab.traffic_control import DIRECTIONS, TrafficError
from mrc_testbed.topologies.plan import CPU_PORT, Plan, Switch

TIMEOUT_S = 5.0
"""A bound for counters, seconds: those of a switch that does not answer are told as unread."""
CELL_BITS, REASONS = 9, 16
"""The counter `drops` is indexed by reason and port (p4src/headers.p4)."""


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """Counts of one switch; a switch without power knows nothing any more."""

    on: bool
    cells: Mapping[str, list[int] | None] = field(default_factory=dict)
    """Counter -> packets by offset; None: its program has no such counter."""
    queue_drops: list[int] | None = None
    """Packets that found a queue of the traffic manager full, by priority."""
    lost: int | None = None
    """Packets that the settings of its cables lost."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all switches, and bytes that wait in data queues, by interface."""

    switches: dict[str, SwitchCounts]
    depths: dict[str, int | None]


def read_embedded(client: JsonlClient, cells: Mapping[str, Sequence[int]], depths: Sequence[str]) -> Counts:
    """All embedded switches. Raises FabricError."""
    try:
        reply = client.request("counts", cells=cells, depths=depths, timeout_s=TIMEOUT_S, patient=True)
    except JsonlError as error:
        raise FabricError(f"the switches' counts cannot be read: {error}") from error
    switches = {
        name: SwitchCounts(device["on"], device.get("cells", {}), device.get("queue_drops"), device.get("lost"))
        for name, device in reply["devices"].items()
    }
    return Counts(switches, reply["depths"])


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """Counters that are read of one switch, time and again."""

    switch: Switch
    positions: dict[tuple[int, int], tuple[str, int]]
    """Counter id and cell -> name of the counter and position in its list."""
    request: bytes


class P4RuntimeCounts:
    """Counts of BMv2 switches: P4 counters over P4Runtime, losses from cables, depths from `depth_of`.

    `depth_of(interface)`: packets that wait in a data queue. Packets without room in a queue are not counted:
    `lost_inside` has them when nothing waits.
    """

    def __init__(self, plan: Plan, run_dir: RunDir, cables: Cables, depth_of: Callable[[str], int]) -> None:
        self._plan, self._cables, self._depth_of = plan, cables, depth_of
        path = run_dir.program / "p4info.txtpb"
        info = text_format.Parse(path.read_text(), p4i.P4Info())
        self._ids = {counter.preamble.name.rpartition(".")[2]: counter.preamble.id for counter in info.counters}
        addresses = run_dir.read_switches()
        self._cells: Mapping[str, Sequence[int]] = {}
        """Counters and cells of the last `read`, whose requests are kept in `_readings`."""
        self._readings: list[SwitchReading] = []
        self._calls = {name: self._call(address["address"]) for name, address in addresses.items()}

    @staticmethod
    def _call(address: str) -> tuple[grpc.Channel, Any]:
        channel = grpc.insecure_channel(address, [(ChannelOptions.SingleThreadedUnaryStream, 1)])  # no thread a read
        call: Any = channel.unary_stream(
            "/p4.v1.P4Runtime/Read",
            response_deserializer=p4r.ReadResponse.FromString,
        )
        return channel, call

    def read(self, cells: Mapping[str, Sequence[int]], depths: Sequence[str]) -> Counts:
        """All switches at once; one that does not answer has no power, as far as can be told."""
        if cells != self._cells:
            self._cells, self._readings = cells, [self._reading(switch, cells) for switch in self._plan.switches]
        answers = [(reading, self._send(reading.switch, reading.request)) for reading in self._readings]
        switches = {reading.switch.name: self._counts(reading, replies, cells) for reading, replies in answers}
        return Counts(switches, {port: self._depth(port) for port in depths})

    def _depth(self, interface: str) -> int | None:
        """Bytes that wait in a data queue, were all packets full ones; None: its switch does not answer."""
        try:
            return self._depth_of(interface) * self._plan.frame_bytes()
        except TrafficError:
            return None

    def lost_inside(self, came_before: Mapping[str, int]) -> dict[str, int]:
        """Return packets that came to a switch, that its program did not drop, and that did not leave.

        Causes: a full queue, or a port whose packets were not read in time. By switch, since it began; what waits in a
        queue is counted, and what passes meanwhile may hide as many. `came_before`: what had come to switches before
        they began, which count from 0 then. A switch without power is left out. Raises FabricError.
        """
        answers = []
        for switch in self._plan.switches:
            numbers = [port.number for port in self._plan.ports(switch.name)]
            cells = {"forwarded": [CPU_PORT, *numbers]}
            cells["drops"] = [reason << CELL_BITS | number for reason in range(REASONS) for number in numbers]
            came = self._cables.came_to(switch.name) - came_before.get(switch.name, 0)
            request = self._request(switch, [(self._ids[name], index) for name in cells for index in cells[name]])
            answers.append((switch.name, self._send(switch, request), came))
        out: dict[str, int] = {}
        for name, replies, came in answers:
            counter_cells = self._answer(name, replies)
            if counter_cells is not None:
                out[name] = max(0, came - sum(cell.data.packet_count for cell in counter_cells))
        return out

    def _reading(self, switch: Switch, cells: Mapping[str, Sequence[int]]) -> SwitchReading:
        ports = [port.number for port in self._plan.ports(switch.name)]
        positions = {
            (self._ids[name], offset + port): (name, position)
            for name in cells
            if name in self._ids
            for position, offset in enumerate(cells[name])
            for port in ports
        }
        return SwitchReading(switch, positions, self._request(switch, positions))

    def _counts(
        self, reading: SwitchReading, replies: Iterable[p4r.ReadResponse], cells: Mapping[str, Sequence[int]]
    ) -> SwitchCounts:
        """Await the counts of a switch. Raises FabricError."""
        counter_cells = self._answer(reading.switch.name, replies)
        if counter_cells is None:
            return SwitchCounts(False)
        sums = {name: [0] * len(offsets) for name, offsets in cells.items() if name in self._ids}
        for cell in counter_cells:
            name, position = reading.positions[cell.counter_id, cell.index.index]
            sums[name][position] += cell.data.packet_count
        ports = [port.interface for port in self._plan.ports(reading.switch.name)]
        lost = sum(self._cables.read(port, way).lost_pkts for port in ports for way in DIRECTIONS)
        return SwitchCounts(True, {name: sums.get(name) for name in cells}, lost=lost)

    @staticmethod
    def _request(switch: Switch, cells: Iterable[tuple[int, int]]) -> bytes:
        """Return a request for cells, by counter id and index."""
        entries = [p4r.CounterEntry(counter_id=counter, index=p4r.Index(index=index)) for counter, index in cells]
        entities = [p4r.Entity(counter_entry=entry) for entry in entries]
        request = p4r.ReadRequest(device_id=switch.device_id, entities=entities)
        return bytes(request.SerializeToString())

    def _send(self, switch: Switch, request: bytes) -> Iterable[p4r.ReadResponse]:
        replies: Iterable[p4r.ReadResponse] = self._calls[switch.name][1](request, timeout=TIMEOUT_S)
        return replies

    @staticmethod
    def _answer(name: str, replies: Iterable[p4r.ReadResponse]) -> list[p4r.CounterEntry] | None:
        """Await the cells; None: the switch does not answer. Raises FabricError."""
        try:
            return [entity.counter_entry for reply in replies for entity in reply.entities]
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return None
            raise FabricError(f"{name}: its counters cannot be read: {error.details()}") from error

    def close(self) -> None:
        """Hang up. Idempotent."""
        for channel, _ in self._calls.values():
            channel.close()
