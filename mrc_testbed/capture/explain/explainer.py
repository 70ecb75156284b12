"""Comments on packets, in their order: path, mark, trim, what is sent again, what answers what.

    explainer = Explainer(plan)
    explainer.comment(frame, at_ns=..., interface="p1-t0-0-eth3", direction=OUTBOUND)
    -> "MRC: h0 > h2 by EV 0x0101: p1-t0-0, p1-t1-1, p1-t0-1; WRITE_ONLY, QP 0x3, PSN 7; retransmission of frame 12"

Frames are numbered from 1 as Wireshark numbers them. A packet is known again by its hosts, QP and PSN, a transmission
of it by its EV and BTH.rtx: the same one at another port of the node is on its way through, at the same port it was
sent again. Inner addresses name the plane, so hosts are told by rack and downlink: what is sent again may take another
plane.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from ipaddress import ip_address

from mrc_testbed.capture.explain.link_layer import is_readable, link_name
from mrc_testbed.capture.explain.packet_facts import PacketFacts, facts_of
from mrc_testbed.capture.packet_files import LINKTYPE_ETHERNET
from mrc_testbed.hosts.clustermapper.packets import UDP_PORT as SELF_PROBE_PORT
from mrc_testbed.hosts.engine.rocev2.rc_packets import RcOpcode, RcSyndrome
from mrc_testbed.hosts.engine.wire.packets import ENDPOINT_QPN, EndpointOp, NackReason, Opcode, Syndrome, Verdict
from mrc_testbed.hosts.ip.flows import NotIpError, read_header
from mrc_testbed.topologies.plan import (
    ROLE_DOWNLINK,
    ROLE_T0,
    ROLE_T1,
    Plan,
    PlanError,
    default_t0,
    default_t1,
    ev_plane,
    ev_uplink,
)

PREFIX = "MRC: "
IP_PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
"""Names of protocols in carried IP packets."""
"""Begin of every comment of ours: to filter by, and to replace it when a file is explained again."""
PACKETS_KEPT = 1 << 17
"""Packets that are remembered, the last ones: about 150 MB."""
_PSNS = 1 << 24
_Tap = tuple[str, int]
"""Interface and direction."""
_End = tuple[int, int] | bytes
"""A host: rack and downlink; of a foreign packet its address."""


@dataclass(slots=True)
class _Sight:
    """A transmission as it passed a port."""

    frame: int
    at_ns: int | None
    """None: the file tells no time."""
    tap: _Tap
    marked: bool
    trimmed: bool
    size: int
    """Bytes on the wire."""


@dataclass(slots=True)
class _Transmission:
    ev: int
    is_retransmission: bool
    sights: list[_Sight] = field(default_factory=list)
    refusal: str = ""
    """The NACK that refused it."""


class Explainer:
    """Writer of comments, with its memory of the packets so far.

    Without a plan hosts are named by rack and downlink.
    """

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan
        self._frames = 0
        self._forgotten = False
        self._packets: OrderedDict[tuple[_End, _End, int], dict[int, list[_Transmission]]] = OrderedDict()
        """Transmissions by source, destination and PSN, then by QP, the newest last."""
        self._probes: OrderedDict[tuple[_End, _End, int], int] = OrderedDict()
        """Frame of each reliability probe, by its number."""
        self._quickest: dict[tuple[str, str, int], int] = {}
        """Least nanoseconds through a switch so far, by ports and size."""
        self.explained_count = 0
        """Packets of MRC and of the RoCEv2 baseline so far."""
        self.known_count = 0
        """Explained packets and Clustermapper's self-probes so far."""
        self.unread_links: Counter[int] = Counter()
        """Packets so far of each link type that is not read."""

    def comment(
        self,
        frame: bytes,
        *,
        at_ns: int | None,
        link_type: int = LINKTYPE_ETHERNET,
        interface: str = "",
        direction: int = 0,
        size: int = 0,
        queue: str = "",
    ) -> str:
        """The comment of the next frame. `size`: bytes it had on the wire, if it was cut short since.

        `queue`: what is known of the one it waited in, in words.
        """
        self._frames += 1
        if not is_readable(link_type):
            self.unread_links[link_type] += 1
            return f"{PREFIX}not read: {link_name(link_type)}"
        facts = facts_of(frame, link_type)
        if facts.interface_index:  # a cooked capture is of many interfaces, whatever its own name
            interface = f"interface {facts.interface_index}"
        if facts.opcode is None:
            return PREFIX + self._foreign_packet(facts)
        self.explained_count += 1
        self.known_count += 1
        parts = [self._way(facts), self._kind(facts)]
        if facts.writes:
            parts += self._transmission(
                facts,
                _Sight(
                    self._frames,
                    at_ns,
                    (interface, direction or facts.direction),
                    facts.marked,
                    facts.trimmed,
                    size or len(frame),
                ),
            )
        elif facts.marked:
            parts.append("marked (CE)")
        if queue and facts.in_data_queue:
            parts.append(queue)
        return PREFIX + "; ".join(part for part in parts if part)

    # ---- where it goes --------------------------------------------------------------------------------------

    def _way(self, facts: PacketFacts) -> str:
        ends = f"{self._host(facts.source)} > {self._host(facts.destination)}"
        return f"{ends} by EV {_ev(facts.ev)}: {self._path(facts)}"

    def _host(self, address: bytes) -> str:
        host_match = self._plan.host_of_address(address) if self._plan else None
        if host_match is not None:
            return host_match[0].name
        location = Plan.place_of_address(address)
        return f"host {location[2]} of rack {location[1]}" if location else "a host of no fabric of ours"

    def _path(self, facts: PacketFacts) -> str:
        """Switches by name."""
        source, destination = Plan.place_of_address(facts.source), Plan.place_of_address(facts.destination)
        if source is None or destination is None:
            return "no path of this fabric"
        plane = source[0]
        first, last = self._t0(plane, source[1]), self._t0(plane, destination[1])
        if first == last:
            return first
        if not self._ev_is_path(facts):
            return f"{first}, a T1 that the T0 chooses, {last}"
        uplink = ev_uplink(facts.ev)
        if ev_plane(facts.ev) != plane or facts.ev >> 16 or (self._plan and uplink >= self._plan.spines):
            return f"no path of plane {plane}"
        return f"{first}, {self._t1(plane, uplink)}, {last}"

    def _node(self, usid: int) -> str:
        role, plane, number = usid >> 12, usid >> 8 & 0xF, usid & 0xFF
        if role == ROLE_T0:
            return self._t0(plane, number)
        if role == ROLE_T1:
            return self._t1(plane, number)
        return f"NIC {number}" if role == ROLE_DOWNLINK else f"uSID {usid:#06x}"

    def _t0(self, plane: int, rack: int) -> str:
        return self._plan.t0_name(plane, rack) if self._plan else default_t0(plane, rack)

    def _t1(self, plane: int, number: int) -> str:
        return self._plan.t1_name(plane, number) if self._plan else default_t1(plane, number)

    def _ev_is_path(self, facts: PacketFacts) -> bool:
        return facts.usids is not None if self._plan is None else self._plan.mode.ev_is_path

    def _foreign_packet(self, facts: PacketFacts) -> str:
        if facts.carried_packet:
            self.known_count += 1
            return f"{self._way(facts)}; {_carried_packet(facts.carried_packet)}"
        if facts.foreign_opcode is not None:
            return f"RoCEv2 of another kind, no packet of MRC: opcode {facts.foreign_opcode:#04x}"
        if facts.udp_port != SELF_PROBE_PORT or facts.usids is None:
            return "no packet of MRC"
        self.known_count += 1
        left = ", ".join(map(self._node, facts.usids)) or "nothing"
        return f"Clustermapper's self-probe of {self._host(facts.source)}; still to go: {left}"

    # ---- what it is -----------------------------------------------------------------------------------------

    def _kind(self, facts: PacketFacts) -> str:
        name = facts.opcode.name if facts.opcode is not None else ""
        if isinstance(facts.opcode, RcOpcode):
            name = f"RoCEv2 {name}"
        text = f"{name}, QP {facts.dest_qp:#x}"
        if facts.writes:
            return f"{text}, PSN {facts.psn}"
        answer = self._answer(facts) if facts.headers else ""
        return f"{text}, {answer}" if answer else text

    def _answer(self, facts: PacketFacts) -> str:
        """Return the meaning of a control packet, with the frame that it answers."""
        if facts.opcode is Opcode.SACK:
            return self._sack(facts)
        if facts.opcode is Opcode.NACK:
            return self._nack(facts)
        if facts.opcode is Opcode.RELIABILITY_PROBE:
            probe = facts.headers["probe_id"]
            _keep(self._probes, (*self._ends(facts), probe), self._frames)
            return f"probe {probe:#06x} of the path"
        if facts.opcode in (Opcode.ACKNOWLEDGE, RcOpcode.ACKNOWLEDGE):
            syndromes = Syndrome if facts.opcode is Opcode.ACKNOWLEDGE else RcSyndrome
            return f"{_name(syndromes, facts.headers['syndrome'])}, PSN {facts.psn}"
        if facts.dest_qp != ENDPOINT_QPN or "op" not in facts.headers:
            return ""
        text = _name(EndpointOp, facts.headers["op"])
        if "port_status_mask" not in facts.headers or facts.headers["op"] != EndpointOp.PORT_STATUS_UPDATE:
            return text
        mask = facts.headers["port_status_mask"]
        return f"{text}: ports up: {', '.join(str(n) for n in range(32) if mask >> n & 1) or 'none'}"

    def _sack(self, facts: PacketFacts) -> str:
        seth = facts.headers
        source, destination = self._ends(facts)
        # Bits may begin at or below cack_psn, which stands for those already.
        count_beyond = (seth["sack_bitmap"] >> max(0, 1 - _signed(seth["sack_offset"]))).bit_count()
        text = f"all up to PSN {seth['cack_psn']} arrived" + (f", {count_beyond} beyond" if count_beyond else "")
        if seth["pr"]:
            probe = seth["ack_psn_offset"]
            frame = self._probes.get((destination, source, probe))
            text += f", answers probe {probe:#06x}" + (f" of frame {frame}" if frame else "")
        else:
            psn = (seth["cack_psn"] + _signed(seth["ack_psn_offset"])) % _PSNS
            sent = self._sent(destination, source, psn, seth["entropy"])
            text += f", triggered by frame {sent.sights[-1].frame} (PSN {psn})" if sent else f", triggered by PSN {psn}"
        if seth["m"]:
            text += f", verdict {_name(Verdict, seth['m'])} on EV {_ev(seth['entropy'])}"
        return text

    def _nack(self, facts: PacketFacts) -> str:
        neth = facts.headers
        source, destination = self._ends(facts)
        reason = _name(NackReason, neth["reason"])
        sent = self._sent(destination, source, neth["nack_psn"], neth["entropy"])
        packet = f"frame {sent.sights[-1].frame} (PSN {neth['nack_psn']})" if sent else f"PSN {neth['nack_psn']}"
        if sent:
            sent.refusal = f"NACK {reason} in frame {self._frames}"
        return f"refuses {packet} of EV {_ev(neth['entropy'])}: {reason}"

    def _ends(self, facts: PacketFacts) -> tuple[_End, _End]:
        return _end(facts.source), _end(facts.destination)

    # ---- what became of it ----------------------------------------------------------------------------------

    def _sent(self, source: _End, destination: _End, psn: int, ev: int) -> _Transmission | None:
        """Return the last transmission with that PSN and EV.

        None where it is not known, or not from one QP alone.
        """
        by_qp = self._packets.get((source, destination, psn), {})
        candidates = (_newest_of_ev(transmissions, ev) for transmissions in by_qp.values())
        matches = [sent for sent in candidates if sent is not None]
        return matches[0] if len(matches) == 1 else None

    def _transmission(self, facts: PacketFacts, sight: _Sight) -> list[str]:
        """Describe the packet's earlier sighting or the loss it repairs, and its fate on the way."""
        key = (*self._ends(facts), facts.psn)
        by_qp = self._packets.pop(key, {})
        self._forgotten |= _keep(self._packets, key, by_qp)
        sent = by_qp.setdefault(facts.dest_qp, [])
        for transmission in reversed(sent):
            passing = all(earlier.tap != sight.tap for earlier in transmission.sights)
            if passing and (transmission.ev, transmission.is_retransmission) == (facts.ev, facts.retransmitted):
                last = transmission.sights[-1]
                transmission.sights.append(sight)
                return [self._passage(last, sight), *self._fate(facts, sight, last)]
        is_repeated = facts.retransmitted or (bool(sent) and isinstance(facts.opcode, RcOpcode))
        if not is_repeated:
            sent.clear()  # another packet: its QP was made anew, or PSNs have begun again
        text = self._retransmission(sent[-1] if sent else None, sight) if is_repeated else ""
        sent.append(_Transmission(facts.ev, facts.retransmitted, [sight]))
        return [text, *self._fate(facts, sight, None)]

    def _passage(self, earlier: _Sight, now: _Sight) -> str:
        """Describe the previous sighting of the packet, and its wait in a switch.

        The wait is the time beyond that of the quickest packet of its size.
        """
        text = (
            f"the same packet as frame {earlier.frame} on {earlier.tap[0] or 'another port'}{_ms_before(now, earlier)}"
        )
        if now.at_ns is None or earlier.at_ns is None:
            return text
        if not _node_of(now) or _node_of(earlier) != _node_of(now) or earlier.size != now.size:
            return text
        took_ns = now.at_ns - earlier.at_ns
        ports = (earlier.tap[0], now.tap[0], now.size)
        least_ns = self._quickest[ports] = min(took_ns, self._quickest.get(ports, took_ns))
        waited_ns = took_ns - least_ns
        rate_bps = self._rate_bps(now.tap[0])
        queue_note = f": about {round(waited_ns * rate_bps / 8e9)} bytes before it in the queue" if rate_bps else ""
        return f"{text}, {waited_ns / 1e6:.3f} ms longer than the quickest{queue_note}" if waited_ns else text

    def _rate_bps(self, interface: str) -> float | None:
        """Rate of a port by the plan."""
        try:
            return self._plan.speed(self._plan.link_of_interface(interface)).rate_bps if self._plan else None
        except PlanError:
            return None

    def _retransmission(self, earlier: _Transmission | None, sight: _Sight) -> str:
        if earlier is None:
            search_range = f"among the last {PACKETS_KEPT} packets" if self._forgotten else "in this capture"
            return f"retransmission of a packet that is not {search_range}"
        first = earlier.sights[0]
        refusal_note = f" ({earlier.refusal})" if earlier.refusal else ""
        text = f"retransmission of frame {first.frame}{_ms_before(sight, first)} by EV {_ev(earlier.ev)}"
        return text + refusal_note

    def _fate(self, facts: PacketFacts, sight: _Sight, earlier: _Sight | None) -> list[str]:
        """Mark and trim. `before`: where it was seen last."""
        out = []
        if facts.marked:
            location = _location_between(earlier, sight) if earlier and not earlier.marked else "by a queue on its way"
            out.append(f"marked (CE) {location}")
        if facts.trimmed:
            destination = Plan.place_of_address(facts.destination)
            if facts.trimmed_at_last_hop and destination:
                t0_name = self._t0(destination[0], destination[1])
                location = f"at the last hop: the queue of {t0_name} to the host was full"
            elif earlier and not earlier.trimmed:
                location = _location_between(earlier, sight)
            else:
                location = "by a full queue on its way"
            out.append(f"trimmed {location}")
        return out


def _newest_of_ev(sent: list[_Transmission], ev: int) -> _Transmission | None:
    return next((transmission for transmission in reversed(sent) if transmission.ev == ev), None)


def _end(address: bytes) -> _End:
    location = Plan.place_of_address(address)
    return location[1:] if location else address


def _keep(store: OrderedDict, key: tuple[_End, _End, int], value: object) -> bool:  # type: ignore[type-arg]
    """Store the newest; whether the oldest had to go for it."""
    store[key] = value
    full = len(store) > PACKETS_KEPT
    if full:
        store.popitem(last=False)
    return full


def _location_between(earlier: _Sight, now: _Sight) -> str:
    """Name the location between two sightings: a node, when both are ports of it."""
    node = _node_of(now)
    return f"in {node}" if node and node == _node_of(earlier) else f"after frame {earlier.frame}"


def _node_of(sight: _Sight) -> str:
    """Node of the port; empty where the file names none."""
    return sight.tap[0].rpartition("-eth")[0]


def _ms_before(later: _Sight, earlier: _Sight) -> str:
    """Time between two sightings, with a comma before it; empty where it is not known."""
    if later.at_ns is None or earlier.at_ns is None:
        return ""
    return f", {(later.at_ns - earlier.at_ns) / 1e6:.3f} ms before"


def _signed(value: int) -> int:
    """An int16 of two's complement."""
    return value - (value >> 15 << 16)


def _carried_packet(packet: bytes) -> str:
    """Return the ends and the protocol of an IP packet of an ordinary program."""
    try:
        header = read_header(packet)
    except NotIpError as error:
        return f"IP over the fabric: {error}"
    source, destination = ip_address(header.source), ip_address(header.destination)
    name = IP_PROTOCOLS.get(header.protocol, f"protocol {header.protocol}")
    return f"IP over the fabric, no MRC: {name} {source} > {destination}"


def _ev(ev: int) -> str:
    return f"{ev:#06x}"


def _name(
    names: type[EndpointOp] | type[NackReason] | type[Syndrome] | type[Verdict] | type[RcSyndrome], value: int
) -> str:
    try:
        return names(value).name
    except ValueError:
        return f"{value:#x}"
