"""Network interfaces through the kernel's own calls: flags, offloads, namespaces.

No ifconfig, no ethtool.

A socket belongs to the namespace in which it was opened, whatever its process does later. So one `NetDevices` per
host, opened once inside its namespace, sets interfaces there in microseconds, without a process for each.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.system import rtnetlink
from mrc_testbed.topologies.plan import DEVICE_MTU

IFF_UP, IFF_NOARP = 0x1, 0x80
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCETHTOOL = 0x8913, 0x8914, 0x8946
_CLONE_NEWNET = 0x4000_0000
_ETHTOOL_GLINK = 0x0A
_OFFLOADS = {  # ETHTOOL_S* commands of <linux/ethtool.h>; each takes a u32, 0 = off
    "rx checksum": 0x15,
    "tx checksum": 0x17,
    "scatter-gather": 0x19,
    "TSO": 0x1F,
    "GSO": 0x24,
    "GRO": 0x2C,
}
_IFREQ_BYTES = 40
VXLAN_PORT = 4789
T = TypeVar("T")


def in_namespace(pid: int, job: Callable[[], T]) -> T:
    """The result of `job`, run inside the network namespace of a process, in a thread that ends with it."""
    result: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with open(f"/proc/{pid}/ns/net") as namespace:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            result.append(job())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"netns-{pid}")
    thread.start()
    thread.join()
    if errors:
        raise FabricError(f"cannot work in the network namespace of pid {pid}: {errors[0]}") from errors[0]
    return result[0]


class NodeInterfaces(Protocol):
    """The interfaces of a node, wherever it is. Raises FabricError."""

    def set_flags(self, name: str, on: int = 0, clear: int = 0) -> None:
        """Set and clear IFF_* of an interface."""

    def is_up(self, name: str) -> bool:
        """Administratively up and with carrier."""

    def close(self) -> None:
        """Idempotent."""


class NetDevices:
    """The interfaces of one network namespace: that in which it is created."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
        self._netlink.close()

    def flags(self, name: str) -> int:
        """IFF_* of an interface. Raises FabricError when there is no such interface."""
        request = self._ioctl(_SIOCGIFFLAGS, name, b"")
        (flags,) = struct.unpack_from("H", request, 16)
        return int(flags)

    def set_flags(self, name: str, on: int = 0, clear: int = 0) -> None:
        """Set and clear IFF_* of an interface."""
        self._ioctl(_SIOCSIFFLAGS, name, struct.pack("H", self.flags(name) & ~clear | on))

    def is_up(self, name: str) -> bool:
        """Administratively up and with carrier, that is: its other end is up too.

        Not IFF_RUNNING: that follows the carrier up to a second later (the kernel batches such news).
        """
        return bool(self.flags(name) & IFF_UP) and self._ethtool(name, _ETHTOOL_GLINK) == 1

    def quiet(self, name: str) -> None:
        """Keep the kernel's IPv6 from sending on an interface that is still down, by netlink.

        Raises FabricError.
        """
        try:
            rtnetlink.no_own_addresses(name, self._netlink)
        except OSError as error:
            raise FabricError(f"{name}: cannot keep the kernel's IPv6 off: {error.strerror or error}") from error

    def offloads_off(self, name: str, *, in_pieces: bool = False) -> None:
        """Turn off what makes frames differ from what was sent: checksum offload, segmentation, merging.

        `in_pieces`: a frame may lie in several pieces of the kernel's memory (scatter-gather), which saves a copy of
        each that is longer than a page; where no program in the kernel, as those of cables are, looks into it.
        """
        for offload, command in _OFFLOADS.items():
            if in_pieces and offload == "scatter-gather":
                continue
            try:
                self._ethtool(name, command)
            except FabricError as error:
                cause = error.__cause__
                if not (isinstance(cause, OSError) and cause.errno == errno.EOPNOTSUPP):
                    raise FabricError(f"{name}: cannot turn {offload} off: {cause}") from cause

    def _ethtool(self, name: str, command: int) -> int:
        """An ethtool command with a u32 value: sends 0, returns what came back."""
        value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
        self._ioctl(_SIOCETHTOOL, name, struct.pack("P", ctypes.addressof(value)))
        return int(struct.unpack("II", value.raw)[1])

    def _ioctl(self, call: int, name: str, value: bytes) -> bytes:
        request = struct.pack("16s", name.encode()) + value
        try:
            return fcntl.ioctl(self._socket, call, request.ljust(_IFREQ_BYTES, b"\0"))
        except OSError as error:
            raise FabricError(f"interface {name}: {error.strerror}") from error


def forbid_ipv6(name: str) -> None:
    """Forbid the kernel's IPv6 on an interface of the calling thread's namespace, where that can be set.

    The kernel then drops our packets before it looks into them, which saves a microsecond each. Where /proc/sys is
    read-only, as in a container, it looks in vain: the interface has no address (`NetDevices.quiet`).

    `default` stands for interfaces yet to come.
    """
    path = Path("/proc/sys/net/ipv6/conf") / name / "disable_ipv6"
    try:
        path.write_text("1")
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EROFS, errno.EACCES):  # ENOENT: a kernel without IPv6
            raise


def prepare_namespace() -> NetDevices:
    """Inside a new host namespace: no IPv6 on interfaces to come, loopback up; returns its interfaces."""
    forbid_ipv6("default")
    devices = NetDevices()
    devices.set_flags("lo", on=IFF_UP)
    return devices


@dataclass(frozen=True, slots=True)
class VethEnd:
    """One end of a veth pair to be made."""

    name: str
    mac: str | None = None
    """None: the kernel draws one."""
    pid: int | None = None
    """A process in whose network namespace it goes; None: it stays in ours."""

    def words(self, group: int) -> str:
        """Return the end's words of `ip link add`."""
        mac = f" address {self.mac}" if self.mac else ""
        namespace = f" netns {self.pid}" if self.pid is not None else ""
        return f"name {self.name}{mac} mtu {DEVICE_MTU} group {group}{namespace}"


@dataclass(frozen=True, slots=True)
class VxlanEnd:
    """One end of a VXLAN tunnel to be made (RFC 7348), with one peer."""

    name: str
    mac: str
    vni: int
    local: str
    """Address of this machine, and of the peer."""
    remote: str
    pid: int | None = None
    """Process in whose network namespace the end goes; None: ours.
    
    Tunnelled packets leave from ours.
    """

    def words(self, group: int) -> str:
        """Return the end's words of `ip link add`.

        No learning: there is one peer. No checksums over what our own iCRC guards.
        """
        namespace = f" netns {self.pid}" if self.pid is not None else ""
        return (
            f"name {self.name} address {self.mac} mtu {DEVICE_MTU} group {group}{namespace} type vxlan id {self.vni} "
            f"local {self.local} remote {self.remote} dstport {VXLAN_PORT} ttl 64 nolearning noudpcsum"
        )


def create_pairs(pairs: Iterable[tuple[VethEnd, VethEnd]], group: int) -> None:
    """Create veth pairs in one `ip -batch`; the first end of each stays in our namespace.

    What identifies an interface as ours (group, MAC) is there from its first moment. Raises FabricError.
    """
    _create(f"link add {near.words(group)} type veth peer {far.words(group)}" for near, far in pairs)


def create_tunnels(ends: Iterable[VxlanEnd], group: int) -> None:
    """Create the ends here of VXLAN tunnels in one `ip -batch`. Raises FabricError."""
    _create(f"link add {end.words(group)}" for end in ends)


def _create(commands: Iterable[str]) -> None:
    lines = "".join(f"{command}\n" for command in commands)
    run = subprocess.run(["ip", "-batch", "-"], input=lines, capture_output=True, text=True)
    if run.returncode:
        raise FabricError(f"cannot create the links: ip: {run.stderr.strip()}")


def set_carrier(name: str, on: bool, pid: int | None) -> None:
    """Give an interface carrier or take it away (`protodown`), in the namespace of a process or ours.

    What a veth pair does by itself when its other end goes down. Raises FabricError.
    """
    enter = () if pid is None else ("mnexec", "-a", str(pid))
    command = [*enter, "ip", "link", "set", "dev", name, "protodown", "off" if on else "on"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise FabricError(f"{name}: its carrier cannot be set: {run.stderr.strip()}")
