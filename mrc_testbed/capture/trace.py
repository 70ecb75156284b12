"""`mrc trace h0 h2 0x0101`: path of one packet, decided by the tables of the running switches.

From hop to hop: the switch's program and tables are read over P4Runtime and loaded into a device in memory
(live_tables.py), with the port states of now; the frame is pushed through (switch/device/trace.py tells every step),
and what comes out goes over the cable of the plan. Nothing is sent on the fabric and no counter moves.
Facts of the fabric are shown at the cable: a port that is down, a cable that loses packets.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from mrc_testbed.capture.live_fabric import LiveFabric
from mrc_testbed.capture.live_tables import device_like
from mrc_testbed.console.terminal import Style
from mrc_testbed.errors import EXIT_NOT_ARRIVED, UsageError
from mrc_testbed.files.package import P4_PROGRAMS
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import Codec
from mrc_testbed.hosts.engine.wire.packets import Opcode, Write
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.switch.device.trace import PacketTrace
from mrc_testbed.topologies.lab.traffic_control import Cable
from mrc_testbed.topologies.plan import CPU_PORT, Host, Link, Plan, Port, make_ev

PAYLOAD_BYTES = 256
HOPS_MAX = 16


@dataclass
class Hop:
    """One switch: the packet in, the decision, the way out."""

    switch: str
    ingress: Port
    trace: PacketTrace
    egress: Port | None = None
    """Egress port; None when the packet ended here."""
    note: str = ""
    """Effect of the cable behind that port."""


@dataclass
class Way:
    """The whole way of one packet."""

    source: str
    destination: str
    ev: int
    plane: int
    frame: bytes
    hops: list[Hop] = field(default_factory=list)
    end: str = ""
    """End of the way, in words."""
    arrived: bool = False

    def to_json(self) -> dict[str, Any]:
        hops = [
            {
                "switch": hop.switch,
                "in": hop.ingress.interface,
                "out": hop.egress.interface if hop.egress else None,
                "note": hop.note,
                "trace": hop.trace.to_json(),
            }
            for hop in self.hops
        ]
        return {
            "from": self.source,
            "to": self.destination,
            "ev": self.ev,
            "plane": self.plane,
            "frame": self.frame.hex(),
            "hops": hops,
            "arrived": self.arrived,
            "end": self.end,
        }

    def text(self, full: bool) -> str:
        """Hop by hop; `full`: every step of each program."""
        lines = [
            f"{self.source} sends a write of {PAYLOAD_BYTES} bytes to {self.destination}: EV {self.ev:#06x}, "
            f"plane {self.plane}, {len(self.frame)} bytes to {_destination_of(self.frame)}"
        ]
        for number, hop in enumerate(self.hops, 1):
            lines.append(f"{number}  {hop.switch}: in by {hop.ingress.interface}")
            lines += [f"     {line}" for line in (hop.trace.text().splitlines()[1:] if full else _decisions(hop.trace))]
            if hop.egress is not None:
                lines.append(f"     out by {hop.egress.interface}" + (f": {hop.note}" if hop.note else ""))
        return "\n".join([*lines, self.end])


def follow(fabric: LiveFabric, source: str, destination: str, ev: str) -> Way:
    """Way of a packet of an EV (as parse_ev takes it). Raises PlanError for unknown names, UsageError."""
    plan = fabric.plan
    source_host, target = plan.host(source), plan.host(destination)
    if source_host == target:
        raise UsageError(f"{source} to itself: give two hosts")
    number, plane = parse_ev(ev, plan, source_host, target)
    frame = _frame(plan, source_host, target, number, plane)
    way = Way(source, destination, number, plane, frame)
    nic = plan.host_port(source_host, plane)
    link = plan.link_of_interface(nic.interface)
    if not fabric.is_up(link.upper):
        way.end = f"ends at {source}: its port {nic.interface} is down, nothing is sent"
        return way
    if note := _lost(fabric.cable(link.upper.interface, "input")):
        way.end = f"ends on the cable {link.name}: {note}"
        if note.startswith("loses everything"):
            return way
        way.end = ""
    _walk(fabric, way, target, link.upper, frame)
    return way


def _walk(fabric: LiveFabric, way: Way, target: Host, ingress: Port, frame: bytes) -> None:
    """Follow the packet from switch to switch until it ends."""
    plan = fabric.plan
    for _ in range(HOPS_MAX):
        hop = Hop(ingress.node, ingress, _trace_switch(fabric, ingress, frame))
        way.hops.append(hop)
        if not hop.trace.sent:
            way.end = f"ends at {ingress.node}, whose program drops it: {_why_dropped(hop.trace)}"
            return
        number, frame = hop.trace.sent[0]
        # The CPU port has no cable: the controller gets the packet.
        if number == CPU_PORT:
            way.end = f"ends at {ingress.node}: sent to the controller"
            return
        ports = {port.number: port for port in plan.ports(ingress.node)}
        if number not in ports:
            way.end = f"ends at {ingress.node}: out by port {number}, where no cable is"
            return
        hop.egress = ports[number]
        link = plan.link_of_interface(hop.egress.interface)
        far = link.upper if link.lower == hop.egress else link.lower
        hop.note, has_ended = _cross_link(fabric, link, hop.egress, far)
        if has_ended:
            way.end = f"ends on the cable {link.name}: {hop.note}"
            return
        # Hosts forward nothing, so the way ends at any of them, also at another than `there`.
        if far.node in {host.name for host in plan.hosts}:
            _received(plan, way, target, far, frame)
            return
        ingress = far
    way.end = f"still on its way after {HOPS_MAX} switches: a loop"


def _trace_switch(fabric: LiveFabric, ingress: Port, frame: bytes) -> PacketTrace:
    name = ingress.node
    device = device_like(name, fabric.switches[name], fabric.plan.mode.program, fabric.switches_work)
    try:
        for port in fabric.plan.ports(name):
            device.set_port_up(port.number, fabric.is_up(port))
        return device.trace(ingress.number, frame)
    finally:
        device.close()


def _cross_link(fabric: LiveFabric, link: Link, egress: Port, far: Port) -> tuple[str, bool]:
    """(effect of the cable, whether the packet ends there)."""
    if not fabric.is_up(egress):
        return f"{link.name} is down", True
    notes = [_lost(fabric.cable(egress.interface, "output"))]
    if far.node in fabric.switches:
        notes.append(_lost(fabric.cable(far.interface, "input")))
    impairments = ", ".join(note for note in notes if note)
    effect = f"to {far.node}" + (f", and the cable {impairments}" if impairments else "")
    return effect, "loses everything" in impairments


def _lost(cable: Cable) -> str:
    """Injected impairment of a cable, in words."""
    if cable.loss >= 1 or (cable.loss_pattern and "0" not in cable.loss_pattern):
        return "loses everything (injected)"
    if cable.loss or cable.loss_pattern:
        share = f"{100 * cable.loss:.3g} %" if cable.loss else f"pattern {cable.loss_pattern}"
        return f"loses some of it (injected: {share})"
    return ""


def _received(plan: Plan, way: Way, target: Host, port: Port, frame: bytes) -> None:
    """Verdict of the NIC at the end on the frame."""
    host, plane = plan.host(port.node), port.number - 1
    try:
        peer, packet = Decapsulation(plan, host, plane, Codec(Config())).open(frame)
    except WireError as error:
        way.end = f"ends at {port.node}, which does not take it: {error}"
        return
    way.arrived = host.name == target.name
    trimmed = ", trimmed" if getattr(packet, "trimmed", None) is not None else ""
    way.end = f"arrives at {port.interface} of {port.node} from {peer}, EV {packet.ev:#06x}{trimmed}"
    if not way.arrived:
        way.end += f": the wrong host, it was for {target.name}"


def _frame(plan: Plan, source: Host, target: Host, ev: int, plane: int) -> bytes:
    """A write as the NIC of `here` would send it."""
    config = Config()
    payload = bytes(PAYLOAD_BYTES)
    packet = Write(
        dest_qp=0x100,
        ev=ev,
        plane=plane,
        dscp=config.dscp.trimmable,
        ecn=2,
        opcode=Opcode.WRITE_ONLY,
        psn=0,
        msn=0,
        va=0,
        rkey=0,
        dma_length=PAYLOAD_BYTES,
        payload=payload,
        size=0,
    )
    encapsulation = Encapsulation(plan, source, target, plane)
    pieces = Codec(config).encode(packet, encapsulation.addressing)
    inner = b"".join(bytes(piece) for piece in pieces)
    return encapsulation.outer(ev, inner[:4], len(inner)) + inner


def _destination_of(frame: bytes) -> str:
    return str(IPv6Address(frame[38:54]))


def _decisions(trace: PacketTrace) -> Iterator[str]:
    """The tables that decided something, and what changed in the header that switches forward on."""
    for step in trace.tables:
        if step.action != "NoAction":
            yield step.headline.removeprefix("table ").replace(step.name, step.name.rpartition(".")[2], 1)
    if trace.sent and len(trace.sent[0][1]) >= 54:
        old_destination, new_destination = _destination_of(trace.frame), _destination_of(trace.sent[0][1])
        if old_destination != new_destination:
            yield f"destination {old_destination} -> {new_destination}"
        if len(trace.sent[0][1]) < len(trace.frame):
            yield f"trimmed from {len(trace.frame)} to {len(trace.sent[0][1])} bytes"


def _why_dropped(trace: PacketTrace) -> str:
    """Return the drop reason that the program gave (headers.p4), with its source line.

    Without one the reason that the device counted.
    """
    for step in reversed(trace.steps):
        for change in step.changes:
            if change.name == "meta.drop_reason" and change.new_value:
                reasons = drop_reasons()
                name = reasons[change.new_value] if change.new_value < len(reasons) else str(change.new_value)
                table_note = f" (table {step.name.rpartition('.')[2]}: {step.action})" if step.kind == "table" else ""
                return f"{name}{table_note}" + (f", {step.location}" if step.location else "")
    return trace.dropped


def drop_reasons() -> list[str]:
    """Names of `drop_reason_t` by number, from p4src/headers.p4: the one place that has them."""
    text = (P4_PROGRAMS / "headers.p4").read_text(encoding="utf-8")
    body = re.search(r"enum\s+bit<\d+>\s+drop_reason_t\s*\{(.*?)\}", text, re.DOTALL)
    names = {int(number): name for name, number in re.findall(r"(\w+)\s*=\s*(\d+)", body[1] if body else "")}
    return [names.get(number, str(number)) for number in range(max(names, default=0) + 1)]


def parse_ev(text: str, plan: Plan, source: Host, target: Host) -> tuple[int, int]:
    """Return the (EV, plane) of `0x0101`, `257`, or `1/1` for plane 1 and uplink 1.

    In modes of random EVs `1/0x262729ce` is plane 1 and that EV. Raises UsageError.
    """
    planes = dict(plan.ev_planes(source, target))
    head, slash, tail = text.partition("/")
    try:
        ev = int(tail if slash else head, 0)
        plane = int(head, 0) if slash else planes.get(ev)
    except ValueError:
        raise UsageError(f"EV {text!r}: give a number such as 0x0101, or PLANE/UPLINK such as 1/1") from None
    examples = ", ".join(f"{candidate:#06x}" for candidate in list(planes)[:16])
    if not plan.mode.ev_is_path:
        if plane is None or not 0 <= plane < plan.planes or not 0 <= ev < 1 << 32:
            raise UsageError(f"EV {text!r}: in mode {plan.mode} give PLANE/EV, or one of {examples}")
        return ev, plane
    if slash and plane is not None:
        ev = make_ev(plane, ev) if 0 <= plane < 1 << 8 and 0 <= ev < 1 << 8 else -1
    if ev not in planes:
        raise UsageError(f"EV {text} is none of {source.name} to {target.name} (has: {examples})")
    return ev, planes[ev]


def run(run_dir: Path, source: str, destination: str, ev: str, *, full: bool, as_json: bool) -> int:
    """Run the sub-command: 0 when the packet arrives, EXIT_NOT_ARRIVED when it does not.

    Raises UsageError, PlanError.
    """
    fabric = LiveFabric(run_dir)
    try:
        way = follow(fabric, source, destination, ev)
    finally:
        fabric.close()
    print(json.dumps(way.to_json(), indent=2) if as_json else Style.for_stream(sys.stdout).fold(way.text(full)))
    return 0 if way.arrived else EXIT_NOT_ARRIVED
