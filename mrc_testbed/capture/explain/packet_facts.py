"""Content of a frame, as far as it was captured: EV, ports, PSN, marks and headers behind the BTH.

The reader is lenient, unlike the codec: captures hold packets that are cut short (`--snaplen`), trimmed or broken. No
field is checked, lengths least of all; a field beyond the captured bytes is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_packets import RC_WRITES, RcOpcode
from mrc_testbed.hosts.engine.wire.codec import PROTOCOL_UDP, UDP_PORTS, fields_to_ev
from mrc_testbed.hosts.engine.wire.headers import AETH, BTH, CONTROL_HEADERS, ETHERNET, IPV4, IPV6, UDP
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, WRITE_OPCODES, Opcode
from mrc_testbed.hosts.nic.ip_packet import GUE_PORT
from mrc_testbed.topologies.plan import LOCATOR, usids_of

ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
IPV6_IN_IPV6, ROUTING_HEADER = 41, 43

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
    """uSIDs left of the outer destination; None without an outer header."""
    ev: int = 0
    opcode: Opcode | RcOpcode | None = None
    """None: no packet of MRC or of the RoCEv2 baseline."""
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


def facts_of(frame: bytes) -> PacketFacts:
    """Facts of a frame, Ethernet header first. Any bytes will do."""
    facts = PacketFacts()
    try:
        ethertype = ETHERNET.unpack(frame)["ethertype"]
        if ethertype == ETHERTYPE_IPV6:
            _ipv6(facts, frame, ETHERNET.size)
        elif ethertype == ETHERTYPE_IPV4:
            _ipv4(facts, frame, ETHERNET.size)
    except ValueError:  # Layout.unpack: the frame ends here
        pass
    return facts


def _ipv6(facts: PacketFacts, frame: bytes, offset: int) -> None:
    outer = IPV6.unpack(frame, offset)
    next_header, payload_offset = outer["next_header"], offset + IPV6.size
    if next_header == ROUTING_HEADER:
        srh = frame[payload_offset : payload_offset + 2]
        if len(srh) < 2:
            return
        next_header, payload_offset = srh[0], payload_offset + 8 + 8 * srh[1]
    facts.dscp, facts.marked = outer["dscp"], outer["ecn"] == ECN_CE
    if next_header == IPV6_IN_IPV6 and outer["destination"] >> 96 == LOCATOR:
        facts.usids = usids_of(outer["destination"])
        inner = IPV6.unpack(frame, payload_offset)
        facts.marked |= inner["ecn"] == ECN_CE
        next_header, payload_offset = inner["next_header"], payload_offset + IPV6.size
    else:
        inner = outer
    facts.source, facts.destination = (inner[end].to_bytes(16, "big") for end in ("source", "destination"))
    if next_header == PROTOCOL_UDP:
        _udp(facts, frame, payload_offset, inner["flow_label"])


def _ipv4(facts: PacketFacts, frame: bytes, offset: int) -> None:
    header = IPV4.unpack(frame, offset)
    facts.dscp, facts.marked = header["dscp"], header["ecn"] == ECN_CE
    facts.source, facts.destination = (header[end].to_bytes(4, "big") for end in ("source", "destination"))
    if header["protocol"] == PROTOCOL_UDP:
        _udp(facts, frame, offset + 4 * header["ihl"], 0)


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
        return
    facts.opcode, facts.dest_qp, facts.psn = opcode, bth["dest_qp"], bth["psn"]
    facts.retransmitted = isinstance(opcode, Opcode) and bool(bth["rtx"])
    if isinstance(opcode, RcOpcode):
        header_layout = AETH if opcode is RcOpcode.ACKNOWLEDGE else None
    else:
        header_layout = CONTROL_HEADERS[opcode][0] if opcode in CONTROL_HEADERS else None
    if header_layout is not None:
        facts.headers = header_layout.unpack(frame, offset + BTH.size)
