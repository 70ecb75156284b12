"""Cables between ports: two veth pairs joined in the middle.

So a link is cut without touching a switch's port.

::

    p0-t0-0-eth3 ==veth== p0-t0-0-mid3  ~program~  p0-t1-0-mid1 ==veth== p0-t1-0-eth1

BMv2 needs them: it reads all ports in one thread, and libpcap (from 1.10 on) stays inside the read of an interface
that went *administratively* down until a frame comes there, so that a switch whose port is set down forwards nothing at
all; losing the carrier does no harm (docs/design/bmv2.md). A cable is therefore cut at its plugs: with both set down,
both ports lose their carrier, as with a real cable. Nothing here ever sets a port itself down.

A program in each plug (eBPF, a traffic classifier at its ingress) hands frames to the other plug, counts them, and
loses or corrupts some where it is told to. What one direction of a cable does is the sum of two sides, as for
embedded switches: `output` at the port that sends, `input` at the port that receives.

Ports may be set down by hand all the same (`p0-t0-0 ip link set p0-t0-0-eth3 down`). `CableWatch` sees that, sets a
switch's port up again, wakes its switch with a frame, and cuts the cable instead, which is what was meant. When a
host's port goes down, the other end of its cable loses carrier, as behind any cable.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from pyroute2 import IPRoute, NetlinkError

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.system.rtnetlink import link_socket
from mrc_testbed.topologies.lab import netdev
from mrc_testbed.topologies.lab.ebpf import Assembler, HashMap, load_program
from mrc_testbed.topologies.lab.netdev import IFF_NOARP, IFF_UP, NetDevices, VethEnd
from mrc_testbed.topologies.lab.traffic_control import INPUT, OUTPUT, PATTERN_MAX, PPM, Cable, Setting
from mrc_testbed.topologies.plan import Link, Plan, Port

FIGURES = ("loss-ppm", "loss-pattern", "corrupt-ppm", "corrupt-pattern", "seed")
"""Settings of a direction that a cable can do."""
SIDES = (OUTPUT, INPUT)
"""Sides of one direction of a cable, in the order in which a frame meets them."""
WAKING_FRAME = bytes(12) + b"\x88\xb5" + bytes(46)
"""A frame of the ethertype for local experiments (IEEE 802), which no program of ours parses."""

_FAULT = struct.Struct(f"=QQIIIIQQ{PATTERN_MAX}s{PATTERN_MAX}s")
"""Fault of one side of a cable.

Chances of loss and corruption of 2**32; lengths of their patterns; indices into them; random states; patterns.
"""
_COUNTS = struct.Struct("=QQQQQ")
"""Packets and octets that came, packets and octets lost, packets corrupted."""
_FAULT_AT = {
    "chance": (0, 8),
    "length": (16, 20),
    "place": (24, 28),
    "random": (32, 40),
    "pattern": (48, 48 + PATTERN_MAX),
}
_LOOKUP, _LOAD_BYTES, _STORE_BYTES, _REDIRECT = 1, 26, 9, 23
"""Helper functions of the kernel (linux/bpf.h)."""
_DROP = 2  # TC_ACT_SHOT
_CONTEXT_LENGTH, _CONTEXT_IFINDEX = 0, 40  # of struct __sk_buff
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407
"""Linear congruential generator of 64 bits (Knuth, MMIX); its upper half is used."""
_INGRESS = 0xFFFFFFF2
"""Parent of a filter at the ingress hook of clsact (linux/pkt_sched.h)."""
_KEY, _TARGET, _LOST, _CORRUPT, _OFFSET, _MASK, _BYTE = -4, -16, -24, -32, -40, -48, -56
"""Places on the program's stack."""


def program(wires: int, faults: int, counts: int) -> bytes:
    """eBPF program of a plug, given the maps' file descriptors. The layout of their values stands above.

    `wires` has by interface the one to hand frames to, the others have a value by interface * 2 + side.
    """
    return _Program(wires, faults, counts).assemble()


class _Program:
    """Registers: r6 context, r7 length of the frame, r8 key of the side, r9 its fault."""

    def __init__(self, wires: int, faults: int, counts: int) -> None:
        self.code = Assembler()
        self._wires, self._faults, self._counts = wires, faults, counts
        self._numbers = itertools.count()

    def assemble(self) -> bytes:
        """The whole program."""
        code = self.code
        code.alu_reg("mov", 6, 1)
        code.load(7, 6, _CONTEXT_LENGTH, 4)
        code.load(8, 6, _CONTEXT_IFINDEX, 4)
        code.store(10, _KEY, 8, 4)
        self.lookup(self._wires, "drop")
        code.load(1, 0, 0, 4)
        code.store(10, _TARGET, 1, 8)
        code.alu("mul", 8, len(SIDES))
        for number, side in enumerate(SIDES):
            if number:
                code.alu("add", 8, 1)
            code.store(10, _KEY, 8, 4)
            self.afflict(side)
        code.load(1, 10, _TARGET, 8)
        code.alu("mov", 2, 0)
        code.call(_REDIRECT)
        code.exit()
        code.label("drop")
        code.alu("mov", 0, _DROP)
        code.exit()
        return code.code()

    def lookup(self, fd: int, missing_label: str) -> None:
        """r0 = the value of the key in a map; else go on at `missing_label`."""
        code = self.code
        code.map(1, fd)
        code.alu_reg("mov", 2, 10)
        code.alu("add", 2, _KEY)
        code.call(_LOOKUP)
        code.jump_if("eq", 0, 0, missing_label)

    def count(self, registers: Mapping[int, int]) -> None:
        """Add to the side's counters: index -> register, or 0 for 1."""
        code, done_label = self.code, f"counted {next(self._numbers)}"
        self.lookup(self._counts, done_label)
        for index, register in registers.items():
            code.alu("mov", 1, 1)
            if register:
                code.alu_reg("mov", 1, register)
            code.count(0, index * 8, 1)
        code.label(done_label)

    def afflict(self, side: str) -> None:
        """Count a frame, and lose or corrupt it as the fault of a side says."""
        code, kept_label, end = self.code, f"{side} kept", f"{side} done"
        self.count({0: 0, 1: 7})
        self.lookup(self._faults, end)
        code.alu_reg("mov", 9, 0)
        self._decide(0, side, _LOST)
        self._decide(1, side, _CORRUPT)
        code.load(1, 10, _LOST, 8)
        code.jump_if("eq", 1, 0, kept_label)
        self.count({2: 0, 3: 7})
        code.jump("drop")
        code.label(kept_label)
        code.load(1, 10, _CORRUPT, 8)
        code.jump_if("eq", 1, 0, end)
        code.jump_if("eq", 7, 0, end)
        self._flip_a_bit(end)
        self.count({4: 0})
        code.label(end)

    def _decide(self, kind: int, side: str, verdict: int) -> None:
        """Set a flag on the stack: whether a pattern or chance says so for this frame."""
        code = self.code
        no_pattern_label, wrapped_label, no_chance_label = (
            f"{side} {kind} {step}" for step in ("no pattern", "wrapped", "no chance")
        )
        code.alu("mov", 1, 0)
        code.store(10, verdict, 1, 8)
        # Length 0: no pattern is set, so chance alone decides.
        code.load(1, 9, _FAULT_AT["length"][kind], 4)
        code.jump_if("eq", 1, 0, no_pattern_label)
        code.load(2, 9, _FAULT_AT["place"][kind], 4)
        code.alu_reg("mov", 3, 2)
        code.alu("and", 3, PATTERN_MAX - 1)
        code.alu_reg("add", 3, 9)
        code.load(4, 3, _FAULT_AT["pattern"][kind], 1)
        code.store(10, verdict, 4, 8)
        code.alu("add", 2, 1)
        code.jump_if_reg("lt", 2, 1, wrapped_label)
        code.alu("mov", 2, 0)
        code.label(wrapped_label)
        code.store(9, _FAULT_AT["place"][kind], 2, 4)
        code.label(no_pattern_label)
        code.load(1, 9, _FAULT_AT["chance"][kind], 8)
        code.jump_if("eq", 1, 0, no_chance_label)
        self._draw(kind)
        code.jump_if_reg("ge", 2, 1, no_chance_label)
        code.alu("mov", 1, 1)
        code.store(10, verdict, 1, 8)
        code.label(no_chance_label)

    def _draw(self, kind: int) -> None:
        """r2 = the next random number of a fault, 32 bits."""
        code, offset = self.code, _FAULT_AT["random"][kind]
        code.load(2, 9, offset, 8)
        code.constant(3, _MULTIPLIER)
        code.alu_reg("mul", 2, 3)
        code.constant(3, _INCREMENT)
        code.alu_reg("add", 2, 3)
        code.store(9, offset, 2, 8)
        code.alu("rsh", 2, 32)

    def _flip_a_bit(self, failed: str) -> None:
        """Any one of a frame; where that cannot be done go on at `failed`."""
        code = self.code
        self._draw(1)
        code.alu_reg("mov", 3, 2)
        code.alu("and", 3, 7)
        code.alu("mov", 4, 1)
        code.alu_reg("lsh", 4, 3)
        code.store(10, _MASK, 4, 8)
        code.alu("rsh", 2, 3)
        code.alu_reg("mod", 2, 7)
        code.store(10, _OFFSET, 2, 8)
        self._bytes_call(_LOAD_BYTES, failed)
        code.load(1, 10, _BYTE, 1)
        code.load(2, 10, _MASK, 8)
        code.alu_reg("xor", 1, 2)
        code.store(10, _BYTE, 1, 1)
        self._bytes_call(_STORE_BYTES, failed)

    def _bytes_call(self, helper: int, failed: str) -> None:
        """Read the byte at _OFFSET of a frame to _BYTE, or write it from there."""
        code = self.code
        code.alu_reg("mov", 1, 6)
        code.load(2, 10, _OFFSET, 8)
        code.alu_reg("mov", 3, 10)
        code.alu("add", 3, _BYTE)
        code.alu("mov", 4, 1)
        code.alu("mov", 5, 0)
        code.call(helper)
        code.jump_if("ne", 0, 0, failed)


@dataclass(frozen=True, slots=True)
class _CableEnd:
    """One end of a cable: its own port and the far one."""

    port: Port
    far: Port
    link: Link


class Cables:
    """All cables of a fabric. Calls may come from any thread. Times and counters: see the module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._hosts = {host.name for host in plan.hosts}
        self._ends: dict[str, _CableEnd] = {}
        for link in plan.links:
            for port, far in ((link.lower, link.upper), (link.upper, link.lower)):
                self._ends[port.interface] = _CableEnd(port, far, link)
        self._lock = threading.RLock()
        self._devices: NetDevices | None = None
        self._indexes: dict[str, int] = {}
        """Interface indexes of plugs, by name."""
        self._held_down: set[str] = set()
        """Ports that are held down: by name, whichever end."""
        self._unplugged_ports: set[str] = set()
        """Ports of hosts that were set down by hand."""
        self._maps: dict[str, HashMap] = {}
        self._set: dict[tuple[str, str], dict[str, int | str]] = {}
        """Figures by (port, direction)."""
        self._watch: CableWatch | None = None

    # ---- life -------------------------------------------------------------------------------------------

    @property
    def plugs(self) -> list[str]:
        """Interfaces that cables have in the root namespace, beside the ports of switches."""
        return [end.port.plug for end in self._ends.values()]

    @property
    def switch_ports(self) -> list[str]:
        """Ports of switches."""
        return [name for name, end in self._ends.items() if end.port.node not in self._hosts]

    @property
    def host_ports(self) -> list[str]:
        """Ports of hosts."""
        return [name for name, end in self._ends.items() if end.port.node in self._hosts]

    def link(self, interface: str) -> Link:
        """The link of a port."""
        return self._ends[interface].link

    def create(self, group: int, mac: Callable[[Port], str], pids: Mapping[str, int]) -> None:
        """Make all cables, joined, in the interface group; `pids`: a process in each host. Raises FabricError.

        Ports are left as they are made: down.
        """
        pairs = [
            (VethEnd(end.port.plug), VethEnd(name, mac(end.port), pids.get(end.port.node)))
            for name, end in self._ends.items()
        ]
        netdev.create_pairs(pairs, group)
        self._devices = NetDevices()
        for name in self.plugs:
            self._devices.quiet(name)
            netdev.forbid_ipv6(name)
            self._devices.offloads_off(name)
            self._devices.set_flags(name, on=IFF_UP | IFF_NOARP)
        self._join()

    def _join(self) -> None:
        """Load the program once and put it into every plug."""
        sides = len(self._ends) * len(SIDES)
        sizes = {"wires": (8, len(self._ends)), "faults": (_FAULT.size, sides), "counts": (_COUNTS.size, sides)}
        for name, (size, entries) in sizes.items():
            self._maps[name] = HashMap(f"mrc_{name}", size, entries)
        self._indexes = {name: socket.if_nametoindex(name) for name in self.plugs}
        for end in self._ends.values():
            index = self._indexes[end.port.plug]
            self._maps["wires"][index] = struct.pack("=II", self._indexes[end.far.plug], 0)
            for side in range(len(SIDES)):
                self._maps["counts"][index * len(SIDES) + side] = bytes(_COUNTS.size)
        # The maps are filled first: the program may see a frame as soon as a filter runs it.
        handle = load_program("mrc_cable", program(*(self._maps[name].fd for name in sizes)))
        try:
            with IPRoute() as route:
                for index in self._indexes.values():
                    route.tc("add", "clsact", index)
                    route.tc(
                        "add-filter",
                        "bpf",
                        index,
                        ":1",
                        fd=handle,
                        name="mrc_cable",
                        parent=_INGRESS,
                        classid=1,
                        direct_action=True,
                    )
        except NetlinkError as error:
            raise FabricError(
                f"cannot join the cables: {error}: the kernel needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF"
            ) from error
        finally:
            os.close(handle)

    def watch(self, cut: Callable[[str], object], report: Callable[[str], None]) -> None:
        """Follow what is done to ports by hand until `close`; the arguments are CableWatch's."""
        self._watch = CableWatch(self, cut, report)

    def close(self) -> None:
        """Let go of what is held here; the interfaces are the fabric's to remove. Idempotent."""
        # First, and without the lock, which it may wait for: what goes after this is no news.
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        with self._lock:
            for map_ in self._maps.values():
                map_.close()
            self._maps.clear()
            if self._devices is not None:
                self._devices.close()
                self._devices = None

    @property
    def _open_devices(self) -> NetDevices:
        if self._devices is None:
            raise FabricError("no cables: the fabric is not up. Cure: start it first")
        return self._devices

    # ---- up and down ------------------------------------------------------------------------------------

    def set_port(self, interface: str, is_up: bool) -> None:
        """Hold a port down, or release it. Raises FabricError.

        A cable is joined while neither of its ports is held.
        """
        with self._lock:
            (self._held_down.discard if is_up else self._held_down.add)(interface)
            self._plug_in(self._ends[interface].link)

    def _plug_in(self, link: Link) -> None:
        """Set both plugs of a link to their state.

        A plug whose own port has no carrier stays up, to see the carrier come back.
        """
        devices, ends = self._open_devices, (link.lower, link.upper)
        cut = any(end.interface in self._held_down for end in ends)
        for end, far in (ends, reversed(ends)):
            is_plug_up = not cut and far.interface not in self._unplugged_ports
            devices.set_flags(end.plug, on=IFF_UP if is_plug_up else 0, clear=0 if is_plug_up else IFF_UP)

    # ---- what is done by hand ---------------------------------------------------------------------------

    def follow(self, interface: str) -> None:
        """Take carrier from the other end of a host's port that was set down by hand, or give it back."""
        with self._lock:
            devices, cable_end = self._open_devices, self._ends[interface]
            if not devices.flags(cable_end.port.plug) & IFF_UP:
                return  # cut: nothing to see
            is_down = not devices.is_up(cable_end.port.plug)
            if is_down != (interface in self._unplugged_ports):
                (self._unplugged_ports.add if is_down else self._unplugged_ports.discard)(interface)
                self._plug_in(cable_end.link)

    def revive(self, interface: str) -> bool:
        """Set up a switch's port that was set down by hand and wake its switch; return whether it was down."""
        with self._lock:
            if self._open_devices.flags(interface) & IFF_UP:
                return False
            self._open_devices.set_flags(interface, on=IFF_UP)
            self.wake(interface)
            return True

    def wake(self, interface: str) -> None:
        """Let a frame come to a switch's port."""
        with self._lock:
            plug = self._ends[interface].port.plug
            self._open_devices.set_flags(plug, on=IFF_UP)
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
                sender.bind((plug, 0))
                sender.send(WAKING_FRAME)

    # ---- what a direction does to frames ----------------------------------------------------------------

    def apply(self, settings: Iterable[Setting]) -> None:
        """Apply settings of directions; their figures are FIGURES.

        Random states and pattern positions of the direction's fault begin anew.
        """
        with self._lock:
            changed_directions: set[tuple[str, str]] = set()
            for setting in settings:
                key = setting.interface, setting.direction or OUTPUT
                self._set.setdefault(key, {})[setting.figure] = setting.value
                changed_directions.add(key)
            for interface, direction in changed_directions:
                self._write(interface, direction)

    def _write(self, interface: str, direction: str) -> None:
        figures = self._set[interface, direction]
        kinds = ("loss", "corrupt")
        chances = [round(int(figures.get(f"{kind}-ppm", 0)) * (1 << 32) / PPM) for kind in kinds]
        patterns = [bytes(map(int, str(figures.get(f"{kind}-pattern", "")))) for kind in kinds]
        clears = not any(chances) and not any(patterns)
        if self._devices is None:
            if clears:
                return
            raise FabricError(f"{interface}: no cables yet to lose or corrupt packets: start the fabric first")
        key = self._key(interface, direction)
        if clears:
            self._maps["faults"].discard(key)
            return
        randoms = [Random(f"{figures.get('seed', 0)}/{kind}").getrandbits(64) for kind in kinds]
        self._maps["faults"][key] = _FAULT.pack(*chances, *map(len, patterns), 0, 0, *randoms, *patterns)

    def read(self, interface: str, direction: str) -> Cable:
        """Settings and counters of a direction at a port, since the fabric began."""
        with self._lock:
            figures = self._set.get((interface, direction), {})
            _, _, lost, octets, corrupted = self._counts(interface, direction)
        return Cable(
            loss=int(figures.get("loss-ppm", 0)) / PPM,
            loss_pattern=str(figures.get("loss-pattern", "")),
            corruption=int(figures.get("corrupt-ppm", 0)) / PPM,
            corrupt_pattern=str(figures.get("corrupt-pattern", "")),
            seed=int(figures.get("seed", 0)),
            lost_pkts=lost,
            lost_octets=octets,
            corrupted_pkts=corrupted,
        )

    def arrived_packets(self, interface: str) -> int:
        """Packets that a port has been given by its cable."""
        with self._lock:
            came, _, lost, *_ = self._counts(interface, INPUT)
            return came - lost

    def came_to(self, switch: str) -> int:
        """Packets that a switch has been given by all its cables."""
        return sum(self.arrived_packets(port.interface) for port in self.plan.ports(switch))

    def _counts(self, interface: str, direction: str) -> tuple[int, ...]:
        if "counts" not in self._maps:
            return (0,) * 5  # no cables, no frames
        return _COUNTS.unpack(self._maps["counts"][self._key(interface, direction)])

    def _key(self, interface: str, direction: str) -> int:
        """A frame enters the cable at the plug of the port that sends it."""
        cable_end = self._ends[interface]
        plug = cable_end.port.plug if direction == OUTPUT else cable_end.far.plug
        return self._indexes[plug] * len(SIDES) + SIDES.index(direction)


class CableWatch:
    """Follows what is done to ports by hand (see the module), in a thread of its own until `close`.

    `cut(interface)` holds a switch's port down in the fabric's books; `report(text)` gets a line for the user.
    """

    WAKINGS, APART_S = 3, 0.05
    """Number of frames that wake a switch, and the seconds between.
    
    The switch may read the first frame before it notices the port.
    """

    def __init__(self, cables: Cables, cut: Callable[[str], object], report: Callable[[str], None]) -> None:
        self._cables, self._cut, self._report = cables, cut, report
        self._news = link_socket()
        self._end_read, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="cables", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. Idempotent."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
            self._thread.join(timeout=5.0)
            os.close(self._end_read)
            self._news.close()

    def _run(self) -> None:
        while True:
            waiting: list[socket.socket | int] = [self._news, self._end_read]
            readable, _, _ = select.select(waiting, [], [])
            if self._end_read in readable:
                return
            self._drain()
            try:
                self._check_ports()
            except FabricError as error:  # the fabric is going
                self._report(f"cables: {error}")
                return

    def _drain(self) -> None:
        """Take the news unread: any is a reason to look at all ports, which takes some microseconds each."""
        with suppress(BlockingIOError):
            while True:
                try:
                    self._news.recv(1 << 16)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:  # more news than the kernel could keep for us
                        raise

    def _check_ports(self) -> None:
        for interface in self._cables.switch_ports:
            if self._cables.revive(interface):
                self._report(
                    f"{interface} was set down by hand. BMv2 would hear nothing on any port, so it is up again and its "
                    f"cable is cut instead; `link {self._cables.link(interface).name} up` joins it"
                )
                for _ in range(self.WAKINGS - 1):
                    time.sleep(self.APART_S)
                    self._cables.wake(interface)
                self._cut(interface)
        for interface in self._cables.host_ports:
            self._cables.follow(interface)
