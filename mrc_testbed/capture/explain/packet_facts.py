"""Content of a frame, as far as it was captured: EV, ports, PSN, marks and headers behind the BTH.

The reader is lenient, unlike the codec: captures hold packets that are cut short (`--snaplen`), trimmed or broken. No
field is checked, lengths least of all; a field beyond the captured bytes is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mrc_testbed.capture.explain.link_layer import ETHERTYPE_IPV4, ETHERTYPE_IPV6, ip_packet
from mrc_testbed.capture.packet_files import LINKTYPE_ETHERNET
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_packets import RC_WRITES, RcOpcode
from mrc_testbed.hosts.engine.wire.codec import PROTOCOL_UDP, UDP_PORTS, fields_to_ev
from mrc_testbed.hosts.engine.wire.headers import AETH, BTH, CONTROL_HEADERS, IPV4, IPV6, UDP
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, WRITE_OPCODES, Opcode
from mrc_testbed.hosts.nic.ip_packet import GUE_PORT
from mrc_testbed.topologies.plan import LOCATOR, usids_of

IPV4_INSIDE, IPV6_INSIDE, FRAGMENT_HEADER = 4, 41, 44
_FIRST_HEADER = {ETHERTYPE_IPV4: IPV4_INSIDE, ETHERTYPE_IPV6: IPV6_INSIDE}
_IP_LAYOUTS = {IPV4_INSIDE: (IPV4, 4), IPV6_INSIDE: (IPV6, 16)}
"""Layout of the header, and bytes of an address."""
_EXTENSION_BYTES: dict[int, Callable[[int], int]] = {
    **dict.fromkeys((0, 43, 60), lambda length: 8 + 8 * length),  # hop-by-hop, routing (SRH), destination options
    FRAGMENT_HEADER: lambda _: 8,
    51: lambda length: 8 + 4 * length,  # authentication
}
"""Bytes of an extension header of IPv6, by its length field."""

_CONFIG = Config()
_DSCPS = _CONFIG.dscp
_MRC = {int(op): op for op in Opcode}
_RC = {int(op): op for op in RcOpcode}


@dataclass(slots=True)
class PacketFacts:
    """One frame. Addresses are packed; PSNs, EVs and QPNs those of the wire."""

    source: bytes = b""
    destination: bytes = b""
    """Inner addresses."""
    dscp: int = 0
    """DSCP of the outer header where there is one."""
    marked: bool = False
    """CE, in the outer or the inner header."""
    usids: tuple[int, ...] | None = None
    """uSIDs left of the outer destination; None without an outer header of the fabric."""
    direction: int = 0
    """INBOUND or OUTBOUND by a cooked header; 0: not told."""
    interface_index: int = 0
    """Number of the interface by a cooked header; 0: not told."""
    ev: int = 0
    opcode: Opcode | RcOpcode | None = None
    """None: no packet of MRC or of the RoCEv2 baseline."""
    foreign_opcode: int | None = None
    """Opcode of a BTH that MRC and the baseline do not use."""
    udp_port: int = 0
    """Destination port; 0 without UDP."""
    carried_packet: bytes = b""
    """IP packet of an ordinary program (hosts/nic/ip_packet.py)."""
    dest_qp: int = 0
    psn: int = 0
    retransmitted: bool = False
    """BTH.rtx. RoCEv2 has no such bit."""
    headers: dict[str, int] = field(default_factory=dict)
    """Fields of the header behind the BTH: SETH, NETH, AETH, PETH, ERTH or EETH."""

    @property
    def writes(self) -> bool:
        """Whether this is a data packet."""
        return self.opcode in WRITE_OPCODES or self.opcode in RC_WRITES

    @property
    def trimmed(self) -> bool:
        """Whether a switch cut its payload off (§4.3)."""
        return self.dscp in (_DSCPS.trimmed, _DSCPS.trimmed_lasthop)

    @property
    def trimmed_at_last_hop(self) -> bool:
        return self.dscp == _DSCPS.trimmed_lasthop

    @property
    def in_data_queue(self) -> bool:
        """Whether it waits in a port's data queue, not in the one of control and trimmed packets."""
        return not self.trimmed and self.dscp != _DSCPS.control


def facts_of(frame: bytes, link_type: int = LINKTYPE_ETHERNET) -> PacketFacts:
    """Facts of a frame, link layer first. Any bytes will do."""
    facts = PacketFacts()
    try:
        packet = ip_packet(frame, link_type)
        facts.direction, facts.interface_index = packet.direction, packet.interface_index
        if packet.ethertype in _FIRST_HEADER:
            _headers(facts, frame, packet.offset, _FIRST_HEADER[packet.ethertype])
    except (ValueError, IndexError):  # Layout.unpack, or an extension header: the frame ends here
        pass
    return facts


def _headers(facts: PacketFacts, frame: bytes, offset: int, header: int) -> None:
    """Go from IP header to IP header, over extension headers, to UDP; the last addresses are the packet's."""
    flow_label = locator_and_usids = 0
    is_outermost = True
    while header != PROTOCOL_UDP:
        if header in _IP_LAYOUTS:
            if header == IPV6_INSIDE and locator_and_usids >> 96 == LOCATOR:
                facts.usids = usids_of(locator_and_usids)
            layout, address_bytes = _IP_LAYOUTS[header]
            fields = layout.unpack(frame, offset)
            ends = (fields[end].to_bytes(address_bytes, "big") for end in ("source", "destination"))
            facts.source, facts.destination = ends
            facts.marked |= fields["ecn"] == ECN_CE
            facts.dscp = fields["dscp"] if is_outermost else facts.dscp
            is_outermost = False
        if header == IPV6_INSIDE:
            flow_label, locator_and_usids = fields["flow_label"], fields["destination"]
            header, offset = fields["next_header"], offset + IPV6.size
        elif header == IPV4_INSIDE:
            # A later fragment has no UDP header; a header without its own length would not end.
            if fields["fragment_offset"] or 4 * fields["ihl"] < IPV4.size:
                return
            flow_label = locator_and_usids = 0
            header, offset = fields["protocol"], offset + 4 * fields["ihl"]
        elif header in _EXTENSION_BYTES:
            if header == FRAGMENT_HEADER and int.from_bytes(frame[offset + 2 : offset + 4], "big") >> 3:
                return
            header, offset = frame[offset], offset + _EXTENSION_BYTES[header](frame[offset + 1])
        else:
            return
    _udp(facts, frame, offset, flow_label)


def _udp(facts: PacketFacts, frame: bytes, offset: int, flow_label: int) -> None:
    udp = UDP.unpack(frame, offset)
    facts.udp_port = udp["dport"]
    if udp["dport"] not in (*UDP_PORTS, GUE_PORT):
        return
    facts.ev = fields_to_ev(udp["sport"], flow_label, _CONFIG.wire.ev_layout)
    offset += UDP.size
    if udp["dport"] == GUE_PORT:
        facts.carried_packet = frame[offset:]
        return
    bth = BTH.unpack(frame, offset)
    opcode = _MRC.get(bth["opcode"]) or _RC.get(bth["opcode"])
    if opcode is None:
        facts.foreign_opcode = bth["opcode"]
        return
    facts.opcode, facts.dest_qp, facts.psn = opcode, bth["dest_qp"], bth["psn"]
    facts.retransmitted = isinstance(opcode, Opcode) and bool(bth["rtx"])
    if isinstance(opcode, RcOpcode):
        header_layout = AETH if opcode is RcOpcode.ACKNOWLEDGE else None
    else:
        header_layout = CONTROL_HEADERS[opcode][0] if opcode in CONTROL_HEADERS else None
    if header_layout is not None:
        facts.headers = header_layout.unpack(frame, offset + BTH.size)
