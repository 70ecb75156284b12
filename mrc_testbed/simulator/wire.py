"""Real bytes in the virtual fabric (`wire=True`): the NICs' own codec, and switches that read frames.

In SRv6 mode a switch does what srv6.p4 does (§8.1): match locator and own uSID, shift the list, look the next uSID up
in the plan's static routes. In the other modes there is no outer header, and the inner addresses decide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, addresses, fields_to_ev
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, ECN_NOT_ECT, PacketRecord
from mrc_testbed.hosts.engine.wire.wire_variants import AnyCodec, in_dialect, outer_words
from mrc_testbed.hosts.nic.base import drop_reason
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.simulator.frames import Frame
from mrc_testbed.simulator.host import VirtualHost
from mrc_testbed.simulator.ports import EgressPort
from mrc_testbed.simulator.switches import VirtualSwitch
from mrc_testbed.topologies.plan import LOCATOR, Plan, Switch

IP = 14
"""Offset of the first IPv6 header, the outer one in SRv6 mode."""
HOP_LIMIT_AT, DESTINATION_AT = IP + 7, IP + 24
ETHERNET = bytes(12) + b"\x86\xdd"


class WireFrame(Frame):
    """Frame with its present bytes in `data`.

    What switches read beside `data` is read from it again when a bit flipped.
    """

    __slots__ = ("data", "wires")

    def __init__(
        self,
        packet: PacketRecord,
        size: int,
        source: str,
        target: str,
        rack: int,
        downlink: int,
        plane: int,
        control: bool,
        trimmable: bool,
        wires: Wires,
        data: bytearray,
    ) -> None:
        super().__init__(packet, size, source, target, rack, downlink, plane, control, trimmable)
        self.wires, self.data = wires, data

    def mark(self) -> None:
        self.marked = True
        self.data[IP + 1] |= ECN_CE << 4

    def trim(self, length: int, dscp: int, _last_hop: bool) -> None:
        del self.data[length:]
        self._set_dscp(dscp)
        self._cut(length)

    def _set_dscp(self, dscp: int) -> None:
        ecn = self.data[IP + 1] >> 4 & 3
        traffic_class = dscp << 2 | ecn
        self.data[IP] = 0x60 | traffic_class >> 4
        self.data[IP + 1] = traffic_class << 4 & 0xF0 | self.data[IP + 1] & 0x0F

    def spoil(self, position: float) -> None:
        bit = IP * 8 + int(position * (len(self.data) - IP) * 8)
        self.data[bit // 8] ^= 0x80 >> bit % 8
        self.wires.read_fields(self)

    def copy(self) -> WireFrame:
        twin = WireFrame(
            replace(self.packet),
            self.size,
            self.source,
            self.target,
            self.rack,
            self.downlink,
            self.plane,
            self.control,
            self.trimmable,
            self.wires,
            bytearray(self.data),
        )
        self._copy_state(twin)
        return twin


class Wires:
    """The codecs of all NICs of a fabric."""

    def __init__(self, plan: Plan, srv6: bool, config: Config) -> None:
        self._plan, self._srv6 = plan, srv6
        self._dscp_control = config.dscp.control
        self._trimmable = (config.dscp.trimmable, config.dscp.trimmable_retx)
        self._encapsulations: dict[tuple[str, int, str], Encapsulation] = {}
        """Encapsulations by host, plane and peer, in SRv6 mode."""
        self._plain: dict[tuple[str, int, str], Addressing] = {}
        """Addressings by host, plane and peer, in the other modes."""
        self._decapsulations: dict[tuple[str, int], Decapsulation] = {}
        self._codecs: dict[str, AnyCodec] = {}

    def _codec(self, host: VirtualHost) -> AnyCodec:
        codec = self._codecs.get(host.name)
        if codec is None:
            config = host.endpoint.config
            codec = self._codecs[host.name] = in_dialect(Codec(config), config, self._srv6)
        return codec

    @staticmethod
    def switch(switch: Switch) -> VirtualSwitch:
        """Return an SRv6 switch that forwards by bytes."""
        return Srv6Switch(switch)

    def frame(
        self,
        host: VirtualHost,
        packet: PacketRecord,
        size: int,
        source: str,
        target: str,
        rack: int,
        downlink: int,
        plane: int,
        control: bool,
        trimmable: bool,
    ) -> WireFrame:
        """Return the frame of a packet with its bytes."""
        data = self.encode(host, packet, plane, target)
        return WireFrame(packet, size, source, target, rack, downlink, plane, control, trimmable, self, data)

    def encode(self, host: VirtualHost, packet: Any, plane: int, peer: str) -> bytearray:
        """Return the bytes of the frame that a NIC sends."""
        key, codec = (host.name, plane, peer), self._codec(host)
        if not self._srv6:
            addressing = self._plain.get(key)
            if addressing is None:
                addressing = self._plain[key] = self._addressing(host, plane, peer)
            return bytearray(ETHERNET + codec.encode(packet, addressing).join())
        out = self._encapsulations.get(key)
        if out is None:
            out = self._encapsulations[key] = Encapsulation(self._plan, host.plan_host, self._plan.host(peer), plane)
        frame, other_word = codec.encode(packet, out.addressing), outer_words(codec)
        word = frame.header[:4] if other_word is None else other_word(frame.header, packet.ev)
        return bytearray(out.outer(packet.ev, word, frame.size) + frame.join())

    def _addressing(self, host: VirtualHost, plane: int, peer: str) -> Addressing:
        plan = self._plan
        return Addressing(plan.address(host.plan_host, plane).packed, plan.address(plan.host(peer), plane).packed)

    def decode(self, host: VirtualHost, frame: Frame, plane: int) -> tuple[str, Any] | None:
        """Return (sender, record) of a frame that arrived; None: the frame was counted by the codec's reason."""
        assert isinstance(frame, WireFrame)
        try:
            if self._srv6:
                taker = self._decapsulations.get((host.name, plane))
                if taker is None:
                    taker = self._decapsulations[host.name, plane] = Decapsulation(
                        self._plan, host.plan_host, plane, self._codec(host)
                    )
                return taker.open(memoryview(frame.data))
            return self._decode_plain(host, memoryview(frame.data)[IP:], plane)
        except WireError as error:
            host.dropped[drop_reason(error)] += 1
            return None

    def _decode_plain(self, host: VirtualHost, packet: memoryview, plane: int) -> tuple[str, Any]:
        source, destination = addresses(packet)
        sender = self._plan.host_of_address(source)
        if destination != self._plan.address(host.plan_host, plane).packed or sender is None:
            raise WireError("not ours: address")
        return sender[0].name, self._codec(host).decode(packet, plane)

    def read_fields(self, frame: WireFrame) -> None:
        """Decode the fields that switches use: class, ECN, without SRv6 also destination and EV."""
        data = frame.data
        traffic_class = (data[IP] << 4 | data[IP + 1] >> 4) & 0xFF
        dscp, frame.ect = traffic_class >> 2, traffic_class & 3 != ECN_NOT_ECT
        frame.control = dscp == self._dscp_control or frame.trimmed
        frame.trimmable = dscp in self._trimmable
        if self._srv6:
            return
        destination = self._plan.host_of_address(bytes(data[DESTINATION_AT : DESTINATION_AT + 16]))
        frame.rack = -1 if destination is None else destination[0].rack
        frame.downlink = 0 if destination is None else destination[0].downlink
        label = int.from_bytes(data[IP + 2 : IP + 4], "big")
        frame.ev = fields_to_ev(int.from_bytes(data[IP + 40 : IP + 42], "big"), label)


class Srv6Switch(VirtualSwitch):
    """uN forwarding on the bytes, as T0 or T1."""

    __slots__ = ("_own_usid", "_routes", "_switch")

    def __init__(self, switch: Switch) -> None:
        super().__init__(switch.name, switch.plane)
        self._switch = switch
        self._own_usid = LOCATOR << 16 | switch.usid
        self._routes: dict[int, EgressPort] = {}
        """Next uSID -> egress."""

    def on_wired(self, plan: Plan) -> None:
        ports: dict[int, EgressPort] = {}
        if self._switch.tier:
            ports.update({plan.rack_port(r): port for r, port in enumerate(self.racks)})
        else:
            ports.update({plan.downlink_port(d): port for d, port in enumerate(self.downlinks)})
            ports.update({plan.uplink_port(k): port for k, port in enumerate(self.uplinks)})
        hops = plan.srv6_routes(self._switch).next_hops
        self._routes = {usid: ports[number] for usid, number in hops}

    def receive(self, frame: Frame, now: float) -> None:
        assert isinstance(frame, WireFrame)
        if self.is_idle:
            self.set_aside(frame, now)
            return
        data = frame.data
        if data[IP] >> 4 != 6 or data[HOP_LIMIT_AT] <= 1:
            self.drop(frame, "hop_limit", now)
            return
        offset = DESTINATION_AT
        if int.from_bytes(data[offset : offset + 6], "big") != self._own_usid:
            self.drop(frame, "no_route", now)
            return
        data[HOP_LIMIT_AT] -= 1
        data[offset + 4 : offset + 16] = data[offset + 6 : offset + 16] + b"\0\0"
        port = self._routes.get(int.from_bytes(data[offset + 4 : offset + 6], "big"))
        if port is None:
            self.drop(frame, "no_route", now)
        else:
            port.send(frame, now)
