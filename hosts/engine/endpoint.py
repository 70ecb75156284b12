"""MRC endpoint: everything behind the NIC ports of one host.

An endpoint reads no clock, opens no socket, starts no thread.

After each call drain `transmit` and `events`, and call `on_timer` when `next_timer` has come. When packets and the
clock wait at the same time, hand in the packets first: an acknowledgment in the socket buffer is no timeout. Times
are float seconds of any one clock. `peer` is an opaque key (the other host's name) which the NIC maps to addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.cc.ccprofile import CcProfiles
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.connection import TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER, Deadlines
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Event
from mrc_testbed.hosts.engine.memory import EngineMemoryRegion, Memory
from mrc_testbed.hosts.engine.paths.peer_table import PeerTable
from mrc_testbed.hosts.engine.qp import EngineQueuePair, TouchedQps
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.rocev2.rc_qp import RcQueuePair
from mrc_testbed.hosts.engine.wire.packets import (
    ENDPOINT_QPN,
    FIRST_QPN,
    EndpointRequest,
    EndpointResponse,
    PacketRecord,
    ReliabilityProbe,
    Write,
)
from mrc_testbed.hosts.engine.wire.psn import PSN_BITS, PSN_MASK

TRANSPORTS: Final = ("mrc", "rocev2")
"""Transports of create_qp: MRC, or the baseline it is compared with."""
BURST: Final = 8
"""Packets a QP may send before the next one has its turn."""


QPNS: Final = range(FIRST_QPN, PSN_MASK + 1)
"""QPNs that a QP can have."""


def first_from(turns: list[int], turn: int) -> int:
    """Return the index of the first of the sorted `turns` that is not below `turn`, as bisect_left does.

    In machine code a call of that one costs more than the search.
    """
    low, high = 0, len(turns)
    while low < high:
        middle = low + high >> 1
        if turns[middle] < turn:
            low = middle + 1
        else:
            high = middle
    return low


class Endpoint:
    """MRC endpoint of one host.

    `planes`: number of NIC ports, all up at first. `seed`: int or random.Random, the only source of randomness.

    `qpns`: the QPNs it gives, so that endpoints which share the ports of one host can share the QPNs too. The first one
    is drawn, unless `first_qpn` names it, and the others follow it: a QPN comes back as late as it can, and an endpoint
    made anew (with a seed that is not the old one) begins elsewhere. Packets on their way to a QP of its earlier life
    then find none, and are dropped and counted (`unclaimed`); where the same QPN comes up after all, the first PSN is
    random too.
    """

    def __init__(
        self,
        name: str,
        config: Config | None = None,
        *,
        planes: int,
        seed: int | Random,
        qpns: range = QPNS,
        first_qpn: int | None = None,
    ) -> None:
        if not 1 <= planes <= 32:
            raise LocalError(f"planes = {planes}: must be 1 to 32, the bits of a port status mask")
        self.name = name
        self.config = config or Config()
        self.planes = planes
        self._rng = seed if isinstance(seed, Random) else Random(seed)
        self.memory = Memory(self._rng)
        """Registrations; use register() and deregister()."""
        self._events: list[Event] = []
        self._peers = PeerTable(planes, self.config, self._events, self._rng)
        self._qps: dict[int, EngineQueuePair] = {}
        self._newest_requestor: EngineQueuePair | None = None
        """QP that the newest answer was for; `_newest_responder`: the newest write.

        The next one is mostly for the same QP, and a look at its number is quicker than one into a dict."""
        self._newest_responder: EngineQueuePair | None = None
        # Lists of QPs with work, kept up to date: asking every QP after each call would cost too much.
        self._turn: list[EngineQueuePair] = []
        """QPs in the order in which they are served, `_next` first; `turn` is a QP's index."""
        self._next = 0
        self._ready_turns: list[int] = []
        """Turns of the QPs that may have packets to send, without those in `_touched_qps`; sorted."""
        self._owing: list[EngineQueuePair] = []
        """QPs that owe a Transport ACK, without those in `_touched_qps`."""
        self._touched_qps = TouchedQps()
        """QPs that changed since their deadlines were asked for."""
        self._deadlines = Deadlines()
        """Deadlines of the QPs, without those in `_touched_qps`."""
        self._qpns = qpns
        if first_qpn is not None and first_qpn not in qpns:
            raise LocalError(f"first_qpn = {first_qpn}: not in {qpns.start} to {qpns.stop - 1}")
        self._next_qpn: int | None = None if first_qpn is None else qpns.index(first_qpn)
        """Index in `qpns` from which the next free QPN is searched; None until the first one is drawn."""
        self.unclaimed_packets = 0
        """Packets received for QPs that do not exist or belong to another peer."""

    # ---- application ------------------------------------------------------------------------------------

    def register(self, buffer: Any, *, va: int | None = None, remote_write: bool = True) -> EngineMemoryRegion:
        """Register a writable buffer (bytearray, mmap, ...), at virtual address `va` when given.

        Raises LocalError when the buffer cannot be registered.
        """
        try:
            return self.memory.register(buffer, va, remote_write)
        except ValueError as error:
            raise LocalError(str(error)) from None

    def deregister(self, region: EngineMemoryRegion) -> None:
        """Writes to the region are refused from now on."""
        self.memory.deregister(region)

    @property
    def cc_profiles(self) -> CcProfiles:
        """CC profiles that a QP can be given before it connects (EngineQueuePair.set_cc_profile, §10.4)."""
        return self._peers.qpccs.profiles

    def create_qp(
        self, qpn: int | None = None, *, transport: str = "mrc", settings: RcConfig | None = None
    ) -> EngineQueuePair:
        """Create a QP in INIT with a random first PSN and a fresh QPN (>= 3), or the given one.

        Raises LocalError.

        `transport`: "mrc", or "rocev2" for the baseline, whose parameters are `settings`.
        """
        if transport not in TRANSPORTS:
            raise LocalError(f"no transport {transport!r} (has: {', '.join(TRANSPORTS)})")
        if settings is not None and transport != "rocev2":
            raise LocalError(f"an RcConfig was given for a QP of transport {transport!r}: only rocev2 takes one")
        if qpn is None:
            if len(self._qps) >= len(self._qpns):
                raise LocalError(f"all {len(self._qpns)} QPNs are in use: destroy a QP")
        elif qpn in self._qps or not FIRST_QPN <= qpn <= PSN_MASK:
            raise LocalError(f"QPN {qpn} is in use or not in {FIRST_QPN} to {PSN_MASK}")
        psn, random_bits = self._rng.getrandbits(PSN_BITS), self._rng.getrandbits(64)
        rng = Random(random_bits)
        # The first QPN comes from bits that are drawn anyway: a given QPN changes no random number.
        if qpn is None:
            qpn = self._free_qpn(random_bits)
        common_arguments = (qpn, psn, self.planes, self.config)
        peers, events, touched_qps = self._peers, self._events, self._touched_qps
        qp: EngineQueuePair
        if transport == "rocev2":
            qp = RcQueuePair(*common_arguments, settings or RcConfig(), self.memory, peers, events, rng, touched_qps)
        else:
            qp = EngineQueuePair(*common_arguments, self.memory, peers, events, rng, touched_qps)
        self._qps[qpn] = qp
        if self._next:  # it is served after all others
            self._turn.insert(self._next, qp)
            self._next += 1
            self._number_turns()
        else:
            qp.turn = len(self._turn)
            self._turn.append(qp)
        return qp

    def _number_turns(self) -> None:
        """Renumber the turns of the QPs."""
        for turn, qp in enumerate(self._turn):
            qp.turn = turn
        self._ready_turns = [qp.turn for qp in self._turn if qp.listed]

    def _free_qpn(self, random_bits: int) -> int:
        """Return the next QPN that no QP has; the very first from `random_bits`."""
        span = len(self._qpns)
        index = random_bits % span if self._next_qpn is None else self._next_qpn
        while self._qpns[index % span] in self._qps:
            index += 1
        self._next_qpn = index + 1
        return self._qpns[index % span]

    def destroy_qp(self, qpn: int) -> None:
        """Forget a QP: packets for it are dropped from now on, and its work requests never complete.

        Raises LocalError for an unknown QPN.
        """
        qp = self.qp(qpn)
        del self._qps[qpn]
        self._newest_requestor = self._newest_responder = None
        del self._turn[qp.turn]
        if qp.turn < self._next:
            self._next -= 1
        qp.turn = -1
        self._deadlines.put(qp, NEVER)
        self._number_turns()
        qp.release()
        if qp.peer is not None:
            self._peers.on_disconnect(self._peers.get(qp.peer), qp)

    def qp(self, qpn: int) -> EngineQueuePair:
        """Return the QP of that number; raises LocalError for an unknown one."""
        try:
            return self._qps[qpn]
        except KeyError:
            raise LocalError(f"no QP {qpn} (has: {', '.join(map(str, self._qps)) or 'none'})") from None

    @property
    def has_events(self) -> bool:
        """Whether events() has some."""
        return bool(self._events)

    def events(self) -> list[Event]:
        """Events since the last call, in order."""
        if not self._events:
            return []
        events = self._events[:]
        self._events.clear()
        return events

    def probe_ev(
        self, peer: str, ev: int, plane: int, *, now: float, timeout_s: float = 0.1, dscp: int | None = None
    ) -> int:
        """Send an EV probe (ERTH op 1, needs no QP); its EvProbeResult event carries the id returned.

        `dscp`: its traffic class; None: that of data.
        """
        if not 0 <= plane < self.planes:
            raise LocalError(f"no plane {plane}. Known: 0 to {self.planes - 1}")
        return self._peers.probe_ev(self._peers.get(peer), ev, plane, now, timeout_s, dscp=dscp)

    def answer_probes_if(self, condition: Callable[[], bool]) -> None:
        """Answer probes and port status updates of peers only while a condition holds.

        For an endpoint beside another of the same host.
        """
        self._peers.answers_probes = condition

    @property
    def local_ports(self) -> int:
        """Return our ports that are up: bit p for plane p."""
        return self._peers.local_ports

    def peer_ports(self, peer: str) -> int:
        """Return the ports of a peer that are up, as far as known: bit p for plane p."""
        return self._peers.ports_of(peer)

    # ---- network and clock ------------------------------------------------------------------------------

    def receive(self, packet: PacketRecord, plane: int, peer: str, now: float) -> None:
        """Take a decoded packet from `peer` that came in on our port of `plane`.

        Never raises for what a packet contains.
        """
        if packet.dest_qp == ENDPOINT_QPN:
            self._receive_endpoint(packet, plane, peer, now)
            return
        is_write = type(packet) is Write
        qp = self._newest_responder if is_write else self._newest_requestor
        if qp is None or qp.qpn != packet.dest_qp:
            qp = self._qps.get(packet.dest_qp)
            if is_write:
                self._newest_responder = qp
            else:
                self._newest_requestor = qp
        if qp is None or qp.peer != peer:
            self.unclaimed_packets += 1
            return
        packet.plane = plane
        sender = qp.link
        assert sender is not None
        sender.ack_paths.on_packet(plane, packet.ev)
        if sender.probe_at == NEVER and isinstance(packet, (Write, ReliabilityProbe)):
            self._peers.on_data(sender, now)
        qp.receive(packet, now)

    def _receive_endpoint(self, packet: PacketRecord, plane: int, name: str, now: float) -> None:
        packet.plane = plane
        peer = self._peers.get(name)
        if type(packet) is EndpointRequest:
            peer.ack_paths.on_packet(plane, packet.ev)
            self._peers.on_request(peer, packet, now)
        elif type(packet) is EndpointResponse:
            peer.ack_paths.on_packet(plane, packet.ev)
            self._peers.on_response(peer, packet, now)
        else:
            self.unclaimed_packets += 1

    def on_port(self, plane: int, is_up: bool, now: float) -> None:
        """Local link state: the plane is withdrawn or readmitted at once, and our peers are notified (§5.12)."""
        if not 0 <= plane < self.planes:
            raise LocalError(f"no plane {plane}. Known: 0 to {self.planes - 1}")
        self._peers.on_port(plane, is_up, now)

    def next_timer(self) -> float | None:
        """Return the time of the next on_timer() call, which may find nothing due; None = nothing is pending."""
        self._update_deadlines()
        first = min(self._deadlines.first(), self._peers.next_deadline(NEVER))  # NEVER: the exact one
        return None if first == NEVER else first

    def next_deadline(self, now: float) -> float:
        """Return a time not after that of next_timer(), found with less work; NEVER when nothing is pending.

        The time is exact where it is not after `now`.
        """
        if self._touched_qps.first is not None:
            self._update_deadlines()
        first, peers = self._deadlines.bound_after(now), self._peers.next_deadline(now)
        return peers if peers < first else first

    def is_settled(self, has_room: bool) -> bool:
        """Return whether there is no event, and transmit() would return an empty list.

        `has_room`: whether a port has room. QPs that can send wait for it.
        """
        return (
            self._touched_qps.first is None
            and not (has_room and self._ready_turns)
            and not self._owing
            and not self._peers.has_control
            and not self._events
        )

    def _update_deadlines(self) -> None:
        """Update the deadlines of the QPs that changed, and whether they can send."""
        qp = self._touched_qps.take_all()
        while qp is not None:
            if not qp.is_examined:
                self._examine(qp)
            if qp.turn >= 0:
                self._deadlines.put(qp, qp.next_deadline())
            qp.sender_changed = False
            following, qp.next_touched = qp.next_touched, None
            qp = following

    def _update_ready(self) -> None:
        """See whether the QPs that changed have something to send."""
        qp = self._touched_qps.first
        while qp is not None:
            if not qp.is_examined:
                self._examine(qp)
            qp = qp.next_touched

    def _examine(self, qp: EngineQueuePair) -> None:
        """List a QP that changed as owing a Transport ACK and as able to send, or no longer."""
        qp.is_examined = True
        if qp.turn < 0:
            return
        if not qp.owing and qp.owes_ack():
            qp.owing = True
            self._owing.append(qp)
        if qp.sender_changed and qp.can_send() != qp.listed:
            qp.listed = not qp.listed
            index = first_from(self._ready_turns, qp.turn)
            if qp.listed:
                self._ready_turns.insert(index, qp.turn)
            else:
                del self._ready_turns[index]

    def on_timer(self, now: float) -> None:
        """Do everything due at `now`. Harmless when early."""
        self._peers.on_timer(now)
        self._update_deadlines()
        if self._deadlines.bound_after(now) <= now:
            due = self._deadlines.take_due(now)
            for qp in self._in_turn([qp for qp in due if isinstance(qp, EngineQueuePair)]):
                qp.on_timer(now)
                qp.touch_responder()  # its deadline was taken out

    def transmit(
        self, now: float, limit: int = 64, room: list[int] | None = None, control_room: list[int] | None = None
    ) -> list[tuple[int, str, PacketRecord]]:
        """Return about `limit` packets as (plane, peer, record), control packets first.

        `room[p]`: packets the port of plane p can take now (None: any number); planes without room, and ports that are
        down, are passed over. What is returned counts as sent. An empty list: nothing can be sent now. `control_room`:
        the same for control packets, where ports have a queue for them; None: they share `room`.
        """
        if not self.can_send():
            return []
        control_credit = None if control_room is None else TxCredit(self.planes, control_room)
        return self.transmit_ready(now, limit, TxCredit(self.planes, room), control_credit)

    def transmit_ready(
        self, now: float, limit: int, ports: TxCredit, control_ports: TxCredit | None
    ) -> list[tuple[int, str, PacketRecord]]:
        """Return what transmit() does, for a caller to whom can_send() just answered True.

        The room is taken from `ports` and `control_ports` (None: from `ports` too).
        """
        out: list[tuple[int, str, PacketRecord]] = []
        local_ports = self._peers.local_ports
        ports.free_ports &= local_ports
        if control_ports is None:
            control_ports = ports
        else:
            control_ports.free_ports &= local_ports
        if not control_ports.free_ports:
            return out
        ready_turns, turn = self._ready_turns, self._turn
        first = first_from(ready_turns, self._next) if self._next else 0
        if self._owing:
            self._collect_acks()
        if self._peers.has_control:
            self._peers.transmit(out, limit, control_ports)
        idle_count, index = 0, first
        while idle_count < len(ready_turns) and len(out) < limit and ports.free_ports:
            if index == len(ready_turns):
                index = 0
            sent_before, qp = len(out), turn[ready_turns[index]]
            qp.transmit(now, out, min(BURST, limit - sent_before), ports)
            # A QP that sent nothing does not end the round; the round ends when all are idle.
            if len(out) == sent_before:
                idle_count += 1
            else:
                idle_count, self._next = 0, qp.turn + 1
            # BURST packets per QP and turn: no QP keeps the ports to itself.
            index += 1
        if self._next == len(turn):
            self._next = 0
        return out

    def can_send(self) -> bool:
        """Transmit may have something to send, as far as ports let it; False saves finding out their room."""
        self._update_ready()
        return len(self._ready_turns) > 0 or len(self._owing) > 0 or self._peers.has_control

    def _collect_acks(self) -> None:
        """Queue the Transport ACKs that are owed."""
        peers = self._peers
        for qp in self._in_turn(self._owing):
            qp.owing = False
            ack = qp.transport_ack()
            if ack is not None:
                peers.queue(peers.get(qp.peer or ""), ack)
        self._owing.clear()

    def _in_turn(self, qps: list[EngineQueuePair]) -> list[EngineQueuePair]:
        """QPs, without those that were destroyed, in the order in which they are served."""
        if len(qps) == 1 and qps[0].turn >= 0:
            return qps
        turns = sorted([qp.turn for qp in qps if qp.turn >= 0])
        first = first_from(turns, self._next)
        return [self._turn[index] for index in turns[first:] + turns[:first]]
