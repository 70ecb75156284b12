"""Readable NIC: each packet is a scapy object that hooks may print, change or drop.

    python -m mrc_testbed.hosts.agent --host h0 --run-dir DIR --nic scapy --hook my_hooks:show

    def show(packet, direction, plane):          # my_hooks.py; direction is "send" or "receive"
        packet.show()
        return packet                            # or a changed one; None drops it

`packet` is Ether / USidCarrier / IPv6 / UDP / BTH / ... / ICRC (hosts/scapy/layers.py), without USidCarrier in modes
other than srv6. On its way out its iCRC
and lengths are still to be computed, so a changed packet leaves valid; set `packet[ICRC].icrc` to send a wrong
one. On its way in they are what arrived; after changing something set `packet[ICRC].icrc = None` to have it
computed again, or the packet is dropped for its iCRC. Hooks run in the order given. One that raises is reported
once, and the packet goes on.

A hundred times slower than the fast NIC, and otherwise the same: same checks, same counters, same transfer.
"""

from __future__ import annotations

import importlib
import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import Addressing
from mrc_testbed.hosts.engine.wire.packets import PacketRecord
from mrc_testbed.hosts.engine.wire.wire_variants import in_dialect, outer_words
from mrc_testbed.hosts.nic.base import (
    ENCAPSULATION_BYTES,
    HOP_LIMIT,
    INNER_OVERHEAD,
    SRH_ROOM,
    AnyPacket,
    Nic,
    NicError,
    Received,
    check_config,
    drop_reason,
)
from mrc_testbed.hosts.nic.encapsulation import Decapsulation
from mrc_testbed.hosts.nic.ip_packet import IpPacket
from mrc_testbed.hosts.nic.netlink import LinkState
from mrc_testbed.hosts.nic.port import bind, clear_error, explain, open_socket
from mrc_testbed.hosts.scapy.codec import ScapyCodec
from mrc_testbed.hosts.scapy.layers import USidCarrier
from mrc_testbed.topologies.plan import Host, Plan

log = logging.getLogger("mrc_testbed.hosts.nic.scapy")

Hook = Callable[[ScapyPacket, str, int], ScapyPacket | None]
FRAME_BYTES = 1 << 16


def load_hook(text: str) -> Hook:
    """Return the function named `module:function`; the current folder is searched too. Raises NicError."""
    module_name, colon, function_name = text.partition(":")
    if not colon or not module_name or not function_name:
        raise NicError(f"--hook {text!r}: must be MODULE:FUNCTION")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise NicError(f"--hook {text!r}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    hook: Hook | None = getattr(module, function_name, None)
    if hook is None or not callable(hook):
        has = ", ".join(n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_"))
        raise NicError(f"--hook {text!r}: no function {function_name} in {module_name} (has: {has or 'none'})")
    return hook


class ScapyNic(Nic):
    """NIC of `host` with one packet socket a port. Raises NicError when one cannot be opened."""

    kind = "scapy"
    _outer_word: Callable[[bytes | bytearray, int], bytes] | None = None
    """First word of the outer header, where it is not that of the inner one."""

    def __init__(self, plan: Plan, host: Host, config: Config, hooks: list[str]) -> None:
        super().__init__(plan, host)
        check_config(config)
        self._scapy_codec = ScapyCodec(config)
        self._codec = in_dialect(self._scapy_codec, config, plan.mode.outer_header)
        self._outer_word = outer_words(self._codec)
        self._decapsulations = {p: Decapsulation(plan, host, p, self._codec) for p in self.ports}
        self._hooks = [load_hook(text) for text in hooks]
        self._mtu = ENCAPSULATION_BYTES - 14 + SRH_ROOM + INNER_OVERHEAD + config.qp.pmtu_bytes
        self._buffer = bytearray(FRAME_BYTES)
        self._reported_hooks: set[Hook] = set()
        self._sockets: dict[int, socket.socket] = {}
        self._indices: dict[int, int] = {}
        try:
            for plane in self.ports:
                self._open(plane)
        except BaseException:
            self.close()
            raise

    def _open(self, plane: int) -> None:
        interface = self.ports[plane].interface
        sock = open_socket(interface, self._mtu)
        try:
            self._indices[plane] = bind(sock, interface)
        except BaseException:
            sock.close()
            raise
        if plane in self._sockets:
            self._sockets[plane].close()
        self._sockets[plane] = sock

    def filenos(self) -> dict[int, int]:
        return {plane: sock.fileno() for plane, sock in self._sockets.items()}

    # ---- out --------------------------------------------------------------------------------------------

    def send(self, plane: int, peer: str, packet: AnyPacket) -> None:
        assert not isinstance(packet, IpPacket), "carries_ip is false"
        peer_host = self.plan.host(peer)
        frame = self._run_hooks(self.wrap(plane, peer_host, packet), "send", plane)
        counters = self.counters[plane]
        if frame is None:
            counters.tx_dropped["hook"] += 1
            return
        wire = self._build(frame, "send")
        if wire is None:
            counters.tx_dropped["cannot be built"] += 1
            return
        try:
            self._sockets[plane].send(wire)
        except OSError as error:
            counters.tx_dropped[explain(error.errno)] += 1
        else:
            counters.tx_packets += 1
            counters.tx_bytes += len(wire)

    def _build(self, packet: ScapyPacket, direction: str) -> bytes | None:
        """Return the bytes of a packet, or None when a hook has set fields that cannot be built."""
        try:
            return bytes(packet)
        except Exception as error:  # whatever a user puts into a field comes out here
            log.error("%s: a packet to %s cannot be built: %s", self.host.name, direction, error)
            return None

    def flush(self) -> None:
        """Do nothing: packets leave one by one."""

    def wrap(self, plane: int, peer_host: Host, packet: PacketRecord) -> ScapyPacket:
        """Return the whole frame of a record, as sent by the port of `plane` towards `peer_host`."""
        port = self.ports[plane]
        uplink_port = self.plan.link_of_interface(port.interface).upper
        source = self.plan.address(self.host, plane)
        addressing = Addressing(source.packed, self.plan.address(peer_host, plane).packed)
        if self._outer_word is None:
            inner = self._scapy_codec.to_scapy(packet, addressing)
            label = inner.fl
        else:
            inner_bytes = self._codec.encode(packet, addressing).join()
            inner = IPv6(inner_bytes)
            label = int.from_bytes(self._outer_word(inner_bytes, packet.ev), "big") & 0xFFFFF
        ethernet = Ether(src=self.plan.mac(port), dst=self.plan.mac(uplink_port))
        if not self.plan.mode.outer_header:
            plain: ScapyPacket = ethernet / inner
            return plain
        carrier = IPv6Address(self.plan.template(self.host, peer_host).address(packet.ev))
        outer = USidCarrier(src=str(source), dst=str(carrier), tc=inner.tc, fl=label, hlim=HOP_LIMIT)
        frame: ScapyPacket = ethernet / outer / inner
        return frame

    # ---- in ---------------------------------------------------------------------------------------------

    def receive(self, limit: int) -> Iterator[Received]:
        for plane, sock in self._sockets.items():
            counters = self.counters[plane]
            for _ in range(limit):
                try:
                    size = sock.recv_into(self._buffer)
                except OSError:
                    break  # nothing waits, or the port is down: the kernel's link news says which
                try:
                    peer, packet = self.unwrap(bytes(self._buffer[:size]), plane)
                except WireError as error:
                    counters.rx_dropped[drop_reason(error)] += 1
                    continue
                counters.rx_packets += 1
                counters.rx_bytes += size
                yield plane, peer, packet

    def unwrap(self, frame: bytes, plane: int) -> tuple[str, PacketRecord]:
        """Return (sending host, record) of an arriving frame, after hooks. Raises WireError for a refused one."""
        packet = self._run_hooks(_dissect(frame), "receive", plane)
        if packet is None:
            raise WireError("hook")
        built_frame = self._build(packet, "receive")
        if built_frame is None:
            raise WireError("cannot be built after a hook")
        return self._decapsulations[plane].open(built_frame)

    def _run_hooks(self, packet: ScapyPacket, direction: str, plane: int) -> ScapyPacket | None:
        for hook in self._hooks:
            try:
                hook_result = hook(packet, direction, plane)
            except Exception as error:  # a user's function may raise anything
                if hook not in self._reported_hooks:
                    self._reported_hooks.add(hook)
                    log.error("hook %s raised; its further errors are not logged", hook, exc_info=error)
                continue
            if hook_result is None:
                return None
            packet = hook_result
        return packet

    # ---- ports ------------------------------------------------------------------------------------------

    def link_changed(self, plane: int, state: LinkState) -> bool:
        clear_error(self._sockets[plane])
        if state.index in (0, self._indices[plane]):
            return False
        self._open(plane)
        return True

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()


def _dissect(frame: bytes) -> Any:
    try:
        return Ether(frame)
    except (struct.error, IndexError, ValueError) as error:
        raise WireError("scapy cannot dissect it") from error
