"""Check of the network between machines: VXLAN datagrams of full size pass, and their round trip.

Checked before there are tunnels, on their own port (UDP 4789), with datagrams of their size that must not be cut in
pieces: what a firewall or a small MTU would swallow later is found here. `Echo` answers, `probe` asks.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import statistics
import threading
import time
from typing import Any, Final

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.netdev import VXLAN_PORT

VXLAN_BYTES: Final = 8
"""Header of VXLAN in front of a frame (RFC 7348)."""
HEADERS_BYTES: Final = {4: 20 + 8, 6: 40 + 8}
"""IP and UDP in front of that, by version."""
COUNT: Final = 12
WAIT_S: Final = 1.0
"""A bound for a datagram to come back, seconds: many are sent, and one has to."""
_MAGIC: Final = b"mrc-underlay"
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_MTU = 10, 2, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24


class Echo:
    """Sends datagrams of a probe back, from an address of ours, until `close`. Raises FabricError."""

    def __init__(self, address: str) -> None:
        self._socket = _udp(address)
        try:
            self._socket.bind((address, VXLAN_PORT))
        except OSError as error:
            self._socket.close()
            raise FabricError(f"UDP port {VXLAN_PORT} of {address} cannot be used: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="underlay", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                data, peer = self._socket.recvfrom(1 << 16)
                if data.startswith(_MAGIC):
                    self._socket.sendto(data, peer)
                elif not data:  # from close()
                    return
            except OSError as error:
                if error.errno == errno.EBADF:
                    return

    def close(self) -> None:
        """Stop answering, and free the port. Idempotent."""
        if self._thread.is_alive():
            address = self._socket.getsockname()
            with _udp(address[0]) as bell:
                bell.sendto(b"", address[:2])
            self._thread.join(timeout=5.0)
        self._socket.close()


def probe(local: str, remote: str, frame_bytes: int) -> dict[str, Any]:
    """Round trip to an Echo with datagrams of frames of that size: {count, lost, min_s, median_s}.

    Raises FabricError when datagrams of the size do not pass.
    """
    payload = frame_bytes + VXLAN_BYTES
    with _udp(local) as asking:
        asking.bind((local, 0))
        asking.settimeout(WAIT_S)
        asking.connect((remote, VXLAN_PORT))
        times: list[float] = []
        for number in range(COUNT):
            mark = _MAGIC + os.urandom(8) + bytes([number])
            began = time.perf_counter()
            try:
                asking.send(mark.ljust(payload, b"\0"))
                while not asking.recv(1 << 16).startswith(mark):
                    pass
            except TimeoutError:
                # Three datagrams without an answer: the path does not carry them; one or two may be chance losses.
                if number >= 2 and not times:
                    break
                continue
            except OSError as error:
                raise FabricError(_send_error(error, asking, local, remote, payload)) from None
            times.append(time.perf_counter() - began)
    if not times:
        raise FabricError(
            f"{remote} does not answer {local} on UDP port {VXLAN_PORT} with {payload} bytes: let it pass the "
            f"firewalls between them, and check that the path takes packets of {payload + _headers(local)} bytes"
        )
    return {"count": COUNT, "lost": COUNT - len(times), "min_s": min(times), "median_s": statistics.median(times)}


def _send_error(error: OSError, asking: socket.socket, local: str, remote: str, payload: int) -> str:
    if error.errno == errno.EMSGSIZE:
        six = asking.family == socket.AF_INET6
        mtu = asking.getsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, _IPV6_MTU if six else _IP_MTU)
        needed_mtu = payload + _headers(local)
        room = mtu - _headers(local) - VXLAN_BYTES
        return (
            f"the path from {local} to {remote} has an MTU of {mtu} and a frame in its tunnel needs {needed_mtu}: "
            f"raise the MTU of the interfaces between (`ip link set dev DEV mtu {needed_mtu}`), or take packets "
            f"whose frames have at most {room} bytes (`--pmtu 1024`)"
        )
    if error.errno == errno.ECONNREFUSED:
        return f"{remote} refuses UDP port {VXLAN_PORT} from {local}: a firewall rejects it, or it is another machine"
    return f"{remote} cannot be reached from {local} on UDP port {VXLAN_PORT}: {error.strerror}"


def _headers(address: str) -> int:
    return HEADERS_BYTES[_version(address)]


def _version(address: str) -> int:
    """Raises FabricError for what is no IP address."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        raise FabricError(f"{address!r} is no IP address: give one, such as 192.0.2.11") from None


def _udp(address: str) -> socket.socket:
    """A socket whose datagrams are never cut in pieces."""
    if _version(address) == 6:
        udp_socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        udp_socket.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IP_PMTUDISC_DO)
        return udp_socket
    udp_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp_socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
    return udp_socket
