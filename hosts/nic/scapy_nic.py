"""The readable NIC: every packet sent or received is a scapy object, which hooks may print, change or drop.

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
    Nic,
    NicError,
    Received,
    check_config,
    drop_reason,
)
from mrc_testbed.hosts.nic.encapsulation import Decapsulation
from mrc_testbed.hosts.nic.netlink import LinkState
from mrc_testbed.hosts.nic.port import bind, clear_error, explain, open_socket
from mrc_testbed.hosts.scapy.codec import ScapyCodec
from mrc_testbed.hosts.scapy.layers import USidCarrier
from mrc_testbed.topologies.plan import Host, Plan

log = logging.getLogger("mrc_testbed.hosts.nic.scapy")

Hook = Callable[[ScapyPacket, str, int], ScapyPacket | None]
FRAME_BYTES = 1 << 16


def load_hook(text: str) -> Hook:
    """The function named `module:function`; modules are also looked for in the current folder. Raises NicError."""
    module_name, colon, function_name = text.partition(":")
    if not colon or not module_name or not function_name:
        raise NicError(f"--hook {text!r}: must be MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
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
    """The ports of `host`, one packet socket each. Raises NicError when one cannot be opened."""

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
        self._reported: set[Hook] = set()
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
        opened = open_socket(interface, self._mtu)
        try:
            self._indices[plane] = bind(opened, interface)
        except BaseException:
            opened.close()
            raise
        if plane in self._sockets:
            self._sockets[plane].close()
        self._sockets[plane] = opened

    def filenos(self) -> dict[int, int]:
        return {plane: opened.fileno() for plane, opened in self._sockets.items()}

    # ---- out --------------------------------------------------------------------------------------------

    def send(self, plane: int, peer: str, packet: PacketRecord) -> None:
        there = self.plan.host(peer)
        frame = self._hooked(self.wrap(plane, there, packet), "send", plane)
        counters = self.counters[plane]
        if frame is None:
            counters.tx_dropped["hook"] += 1
            return
        wire = self._built(frame, "send")
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

    def _built(self, packet: ScapyPacket, direction: str) -> bytes | None:
        """Bytes of a packet, or None when a hook has left it with fields that cannot be built."""
        try:
            return bytes(packet)
        except Exception as error:  # whatever a user puts into a field comes out here
            log.error("%s: a packet to %s cannot be built: %s", self.host.name, direction, error)
            return None

    def flush(self) -> None:
        """Nothing: packets leave one by one."""

    def wrap(self, plane: int, there: Host, packet: PacketRecord) -> ScapyPacket:
        """The whole frame of a record, as it leaves our port of `plane` towards `there`."""
        port = self.ports[plane]
        above = self.plan.link_of_interface(port.interface).upper
        source = self.plan.address(self.host, plane)
        addressing = Addressing(source.packed, self.plan.address(there, plane).packed)
        if self._outer_word is None:
            inner = self._scapy_codec.to_scapy(packet, addressing)
            label = inner.fl
        else:
            made = self._codec.encode(packet, addressing).join()
            inner = IPv6(made)
            label = int.from_bytes(self._outer_word(made, packet.ev), "big") & 0xFFFFF
        ethernet = Ether(src=self.plan.mac(port), dst=self.plan.mac(above))
        if not self.plan.mode.outer_header:
            plain: ScapyPacket = ethernet / inner
            return plain
        carrier = IPv6Address(self.plan.template(self.host, there).address(packet.ev))
        outer = USidCarrier(src=str(source), dst=str(carrier), tc=inner.tc, fl=label, hlim=HOP_LIMIT)
        frame: ScapyPacket = ethernet / outer / inner
        return frame

    # ---- in ---------------------------------------------------------------------------------------------

    def receive(self, limit: int) -> Iterator[Received]:
        for plane, opened in self._sockets.items():
            counters = self.counters[plane]
            for _ in range(limit):
                try:
                    size = opened.recv_into(self._buffer)
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
        """(sending host, record) of an arriving frame, hooks included. Raises WireError for what is not ours."""
        packet = self._hooked(_dissect(frame), "receive", plane)
        if packet is None:
            raise WireError("hook")
        whole = self._built(packet, "receive")
        if whole is None:
            raise WireError("cannot be built after a hook")
        return self._decapsulations[plane].open(whole)

    def _hooked(self, packet: ScapyPacket, direction: str, plane: int) -> ScapyPacket | None:
        for hook in self._hooks:
            try:
                changed = hook(packet, direction, plane)
            except Exception as error:  # a user's function may raise anything
                if hook not in self._reported:
                    self._reported.add(hook)
                    log.error("hook %s raised; further errors of it are not told", hook, exc_info=error)
                continue
            if changed is None:
                return None
            packet = changed
        return packet

    # ---- ports ------------------------------------------------------------------------------------------

    def link_changed(self, plane: int, state: LinkState) -> bool:
        clear_error(self._sockets[plane])
        if state.index in (0, self._indices[plane]):
            return False
        self._open(plane)
        return True

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()


def _dissect(frame: bytes) -> Any:
    try:
        return Ether(frame)
    except (struct.error, IndexError, ValueError) as error:
        raise WireError("scapy cannot dissect it") from error
