"""TUN interface of a host: the kernel's IP packets in and out of its agent.

Needs /dev/net/tun and CAP_NET_ADMIN.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

INTERFACE = "fabric0"
"""Name of the interface in each host."""
_DEVICE = "/dev/net/tun"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class TunError(Exception):
    """Failure to make the interface; the message names the cause and the cure."""


class Tun:
    """TUN interface `fabric0` of this process's network namespace, up, with addresses. Raises TunError.

    The kernel removes it when the process ends, however that happens.
    """

    def __init__(self, addresses: Sequence[IPv4Interface | IPv6Interface], mtu: int) -> None:
        try:
            self._descriptor = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)
            cure = f"mkdir -p /dev/net && mknod {_DEVICE} c 10 200" if is_missing else "run as root (CAP_NET_ADMIN)"
            raise TunError(f"{_DEVICE}: {error.strerror}. Cure: {cure}") from error
        try:
            request = struct.pack("16sH22x", INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI)
            fcntl.ioctl(self._descriptor, _TUNSETIFF, request)
            self.families = self._configure(addresses, mtu)
            """Versions of IP that the interface has: 4, 6."""
        except OSError as error:
            os.close(self._descriptor)
            raise TunError(f"{INTERFACE}: {error.strerror or error}") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    @staticmethod
    def _configure(addresses: Sequence[IPv4Interface | IPv6Interface], mtu: int) -> tuple[int, ...]:
        families = {address.version for address in addresses}
        # A host's namespace forbids IPv6 on its interfaces (netdev.quiet); this one is not a cable of the fabric.
        switch = Path("/proc/sys/net/ipv6/conf") / INTERFACE / "disable_ipv6"
        try:
            switch.write_text("0")
        except OSError:
            families.discard(6)  # no IPv6 in this kernel, or a container whose /proc/sys is read-only
        lines = [f"addr add {address} dev {INTERFACE}" for address in addresses if address.version in families]
        lines.append(f"link set dev {INTERFACE} mtu {mtu} up")
        run = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
        if run.returncode:
            raise TunError(f"{INTERFACE}: ip: {run.stderr.strip()}")
        return tuple(sorted(families))

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes | None:
        """Return the next packet from the kernel; None: none waits.

        Raises TunError when the interface has gone.
        """
        try:
            return os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return None
        except OSError as error:
            raise TunError(f"{INTERFACE}: {error.strerror}. Cure: bring the fabric up again") from error

    def write(self, packet: bytes) -> bool:
        """Give a packet to the kernel; return whether the kernel took it."""
        try:
            os.write(self._descriptor, packet)
        except OSError:  # no memory, or bytes that the kernel takes for no packet
            return False
        return True

    def close(self) -> None:
        """Remove the interface. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
