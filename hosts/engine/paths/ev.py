"""Entropy values: state of one path, and the profile that spreads a QP's packets over its paths.

mrc-protocol §5.4-§5.6 (choice), §5.12 (hold-down, floor); the states and their moves (§7) are in ev_state.py.

Design note: plane first. `EvProfile.choose` goes round the usable planes and takes an EV inside the plane whose turn it
is. Walking one shuffled list of all EVs, as the primer describes it, keeps planes equal on average only, and not at all
once planes have different numbers of skipped or missing EVs; equal planes are what protects the receiver's
ports (§5.5). The price: a plane with one EV left sends on it as much as another plane on all of its own.

Design note: the last EV of a plane. Losses that hit all paths alike, as in the paper's experiment with random loss,
retire EVs faster than probes revive them, until only ev_min_active are left; planes without one then stand idle, and at
1 % loss a host of four planes kept 0.6 of its rate. So the last EV of a plane stays as long as its losses are the odd
ones: a younger packet arrived over it. A dead plane goes as ever, for over its last EV nothing arrives. To tell a lossy
NIC link from lossy paths behind it is not MRC's work (§9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.paths.ev_state import EV_MOVES, EvSignal, EvState, ev_moves

LOSSY_ONE_IN: Final = 8
"""Loss limit, one packet in so many, above which the last EV of a plane is not spared."""
UNKNOWN: Final = -1.0
"""Round trip of a path over which no answer came yet.

A plain float, since it is read for the path of every packet."""
_GOOD: Final = EvState.GOOD
_SKIP: Final = EvState.SKIP
_BAD: Final = EvState.ASSUMED_BAD
_DENIED: Final = EvState.DENIED


class Obstacle(Enum):
    """Reason that no EV can be used."""

    DENIED = "every EV is denied"
    PORTS = "no plane has its ports up at both ends"
    PATHS = "every EV of the planes that are up is assumed bad or denied"


class Transmission:
    """Link in the send-order list of one EV's packets, oldest first; replaces a queue per EV."""

    __slots__ = ("next_on_ev", "serial", "state")

    def __init__(self, serial: int) -> None:
        self.serial = serial
        """Number of this transmission among all of the QP; grows by one each."""
        self.state = 0
        """See send_window.py; 0 = in flight."""
        self.next_on_ev: Transmission | None = None
        """Next transmission over the same EV that is kept."""


class Ev:
    """One EV of one QP: its state, its place, and what is known of its path."""

    # What each packet needs comes first, in narrow types where they do: machine code keeps attributes in this order,
    # and with thousands of EVs none of them is in the CPU's caches when its turn comes.
    value: int
    state: EvState
    plane: int
    kept_count: int
    sent: int
    acked: int
    acked_at_doubt: int
    oldest_kept: Transmission | None
    newest_kept: Transmission | None
    rtt_s: float
    srtt_s: float
    deviation_s: float
    newest_arrived: int
    kept_limit: int
    failures: int

    __slots__ = (
        "accused_at",
        "acked",
        "acked_at_doubt",
        "active",
        "deviation_s",
        "failures",
        "fault_at",
        "held_count",
        "kept_count",
        "kept_limit",
        "lost",
        "marked",
        "needed_streak",
        "newest_arrived",
        "newest_kept",
        "newest_lost",
        "oldest_kept",
        "plane",
        "probes_answered",
        "probing",
        "rtt_s",
        "sent",
        "srtt_s",
        "stand_in",
        "state",
        "streak",
        "trimmed",
        "trimmed_at",
        "value",
    )

    def __init__(self, value: int, plane: int, needed_streak: int) -> None:
        self.value = value
        self.plane = plane
        self.state = EvState.GOOD
        self.sent = 0
        self.acked = 0
        """Packets known to have arrived over the EV."""
        self.acked_at_doubt = -1
        """Value of `acked` at the last suspicion not withdrawn.

        Equal to `acked` while no packet has got through since."""
        # The send window's list of this path's packets (send_window.keep).
        self.oldest_kept = None
        """Oldest of the `kept_count` packets that the send window keeps in order, up to `newest_kept`."""
        self.newest_kept = None
        self.kept_count = 0
        self.rtt_s = self.srtt_s = UNKNOWN
        """Last round-trip time sampled, and smoothed round-trip time of this path alone (gain 1/8), seconds.

        Probes are included. UNKNOWN before the first sample."""
        self.deviation_s = 0.0
        """Smoothed distance of the samples from it (gain 1/4)."""
        self.failures = 0
        """Probes failed in a row."""
        self.newest_arrived = self.newest_lost = 0
        """Highest serials (Sent.serial) known to have arrived over the EV, and lost on it."""
        self.kept_limit = 0
        """Length of the list above which packets that have arrived or were given up are removed."""
        self.active = False
        """Whether it is in the rotation; only EvProfile changes it. GOOD and not active = backup."""
        self.lost = 0
        self.marked = 0
        """SACKs that named it with SKIP_ONCE."""
        self.trimmed = 0
        """Packets trimmed on it before the last hop."""
        self.trimmed_at = float("-inf")
        """Time of the last NACK for such a trim, seconds."""
        self.held_count = 0
        """Demotions refused by the floor, or because it was the last of its plane and still carried packets."""
        self.accused_at = 0.0
        """Time of the last suspicion that was not withdrawn for want of proof."""
        self.probes_answered = 0
        self.streak = 0
        """Probes answered in a row since the last failure."""
        self.needed_streak = needed_streak
        """Streak that ends ASSUMED_BAD; doubles for a repeat offender."""
        self.fault_at: float | None = None
        """Time at which it last became ASSUMED_BAD; None: never."""
        self.probing = False
        """Whether a probe of the EV is due, queued or in flight (owner: QpPaths)."""
        self.stand_in: Ev | None = None
        """Backup that took the EV's slot when the EV last left the rotation."""

    def on_sample(self, rtt_s: float) -> None:
        """Update the path's estimate with a measured round trip."""
        self.rtt_s = rtt_s
        if self.srtt_s < 0:
            self.srtt_s, self.deviation_s = rtt_s, rtt_s / 2
        else:
            self.deviation_s += (abs(rtt_s - self.srtt_s) - self.deviation_s) / 4
            self.srtt_s += (rtt_s - self.srtt_s) / 8

    def carries(self) -> bool:
        """Whether the path is lossy, not dead: a packet sent after the last lost one arrived over it.

        More than one loss in eight is dead.
        """
        return self.newest_arrived > self.newest_lost and self.lost * LOSSY_ONE_IN < self.sent

    @property
    def in_doubt(self) -> bool:
        """Whether it is suspected and still in use, with nothing delivered since."""
        return self.acked_at_doubt == self.acked

    def __repr__(self) -> str:
        return f"Ev({self.value:#06x}, plane {self.plane}, {self.state.name})"


class _Plane:
    """EVs of one plane: `order` is the rotation, `backups` wait outside; `size` is the number of slots.

    Each time round only `_turns` is shuffled, numbers in place of EVs: to move the EVs themselves counts references in
    all of them, of which none is in the CPU's caches.
    """

    __slots__ = (
        "_order",
        "_turns",
        "backups",
        "bit",
        "by_cursor",
        "cursor",
        "members",
        "size",
        "whole_rotation",
    )

    def __init__(self, number: int, evs: list[Ev], size: int, skip_mode: str = "cursor") -> None:
        self.bit = 1 << number
        """Bit of the plane in a mask of ports."""
        self.by_cursor = skip_mode == "cursor"
        self.whole_rotation = skip_mode == "rotation"
        self.members = evs
        self.size = size
        good_evs = [ev for ev in evs if ev.state is _GOOD]
        self._order = good_evs[:size]
        self._turns: list[int] = []
        """Rotation as indexes of `_order`; empty: in the order of `_order`."""
        self.backups = good_evs[size:]
        self.cursor = 0
        for ev in self._order:
            ev.active = True

    @property
    def order(self) -> list[Ev]:
        """EVs of the rotation, to be read or changed."""
        turns = self._turns
        if turns:
            self._order = [self._order[turn] for turn in turns]
            turns.clear()
        return self._order

    @property
    def in_rotation(self) -> int:
        """Number of EVs in the rotation."""
        return len(self._order)

    def next(self, random: Callable[[], float], avoid: Ev | None) -> Ev | None:
        """Return the EV whose turn it is; None when there is none but `avoid`.

        The rotation is shuffled anew each time round.

        Cursor rule (§5.6): a SKIP entry becomes GOOD but is passed over for this packet, one a packet at most; it is
        used when there is no GOOD one. Rotation rule: it stays until all had their turn, or there is no GOOD one. With
        a timer nothing here ends it.
        """
        turns = self._turns
        count = len(self._order)
        cursor = self.cursor
        # The round is over: shuffle the order for the next one.
        if cursor >= count or (self.whole_rotation and all(ev.state is not _GOOD for ev in self.order[cursor:])):
            if not turns:
                turns.extend(range(count))
            shuffle(turns, random)
            cursor = 0
            # Rotation rule: SKIP ends with the round.
            if self.whole_rotation:
                for ev in self._order:
                    ev.state = EV_MOVES[ev.state, EvSignal.TURN_PASSED]
        order = self._order
        # The usual case: the next EV is good. The loop would find it at its first step.
        if cursor < count:
            ev = order[turns[cursor] if turns else cursor]
            if ev.state is _GOOD and ev is not avoid:
                self.cursor = cursor + 1
                return ev
        spare, after_spare = None, cursor
        for step in range(count):
            index = (cursor + step) % count
            ev = order[turns[index] if turns else index]
            if ev is avoid:
                continue
            if ev.state is _GOOD:
                self.cursor = index + 1
                return ev
            # Cursor rule: the first SKIP entry passed becomes GOOD, and is taken when none is.
            if spare is None:
                if self.by_cursor:
                    ev.state = EV_MOVES[ev.state, EvSignal.TURN_PASSED]
                spare, after_spare = ev, index + 1
        self.cursor = after_spare
        return spare


def shuffle(items: list[Any], random: Callable[[], float]) -> None:
    """Fisher-Yates in place; random.shuffle does the same at three times the cost."""
    for i in range(len(items) - 1, 0, -1):
        share: float = random()  # typed, so that machine code multiplies floats, not objects
        j = int(share * (i + 1))
        items[i], items[j] = items[j], items[i]


class Move:
    """Effect of a signal on an EV: states before and after, and the backup that took its slot, if any."""

    __slots__ = ("left_rotation", "new_state", "old_state", "substitute")

    def __init__(self, old_state: EvState, new_state: EvState, left: bool, substitute: Ev | None) -> None:
        self.old_state, self.new_state = old_state, new_state
        self.left_rotation = left
        """Whether it left the rotation; `substitute` (None: no EV) has its slot now."""
        self.substitute = substitute


SignalObserver = Callable[[Ev, EvState, EvSignal, EvState, float], None]
"""Observer of signals, called as observer(ev, state before, signal, state after, now)."""


class EvProfile:
    """The EVs of one QP: who is in the rotation, whose turn it is, and which planes can be used at all.

    `evs`: (EV, plane) pairs, each naming a path of its own; raises ValueError for duplicates or none. `denied`: EVs
    that begin as DENIED; a plane has as many slots as without them, and its backups fill them (§5.13).
    """

    __slots__ = (
        "_by_value",
        "_config",
        "_floor",
        "_local",
        "_moves",
        "_next_turn",
        "_peer",
        "_planes",
        "_random",
        "_rounds",
        "_turns",
        "_usable_count",
        "observer",
        "skips",
        "up_since",
        "usable_planes",
    )

    def __init__(
        self,
        evs: Iterable[tuple[int, int]],
        config: Config,
        rng: Random,
        denied: Iterable[int] = (),
        observer: SignalObserver | None = None,
    ) -> None:
        self._config, self._random = config, rng.random
        self.observer = observer
        """Observer of every signal, also of those that change nothing."""
        self._moves = ev_moves(config)
        self.skips: deque[tuple[float, Ev]] | None = deque() if config.paths.skip_mode == "timer" else None
        """skip_mode "timer": when each SKIP ends, oldest first; None in the other modes. See tick()."""
        self._by_value: dict[int, Ev] = {}
        members: dict[int, list[Ev]] = {}
        denied_values = frozenset(denied)
        for value, plane in evs:
            if value in self._by_value:
                raise ValueError(f"EV {value:#x} appears twice in the profile")
            ev = self._by_value[value] = Ev(value, plane, config.probes.ok_count)
            if value in denied_values:
                ev.state = EvState.DENIED
            members.setdefault(plane, []).append(ev)
        if not members:
            raise ValueError("an EV profile needs at least one EV")
        # Every plane gets the same share of the slots: equal planes protect the receiver's ports (§5.5).
        share = max(1, config.paths.max_active // len(members))
        self._planes: dict[int, _Plane] = {}
        for plane, plane_evs in sorted(members.items()):
            shuffle(plane_evs, rng.random)
            spare = len(plane_evs) // 4 if config.paths.backup_per_plane < 0 else config.paths.backup_per_plane
            self._planes[plane] = _Plane(
                plane, plane_evs, max(1, min(share, len(plane_evs) - spare)), config.paths.skip_mode
            )
        self._floor = self._usable_count = 0
        self._local = self._peer = ~0
        self.up_since = {plane: 0.0 for plane in self._planes}
        """Time at which each plane last came up at both ends.

        The port is to blame for losses of earlier packets."""
        self.usable_planes = 0
        """Bit p set: plane p is up at both ends and has an EV in rotation. choose() takes from these only."""
        self._turns = list(self._planes.values())
        """Planes in the order of their turns in a round."""
        self._next_turn = len(self._turns)
        """Index of the plane whose turn is next; the number of planes: this round is over."""
        self._rounds = 0
        """Rounds left until the order of the planes is shuffled again."""
        self._refresh()

    def __iter__(self) -> Any:
        """Iterate over all EVs in the order of their values."""
        return iter([self._by_value[value] for value in sorted(self._by_value)])

    def values(self) -> list[int]:
        """Values of all EVs, in order."""
        return sorted(self._by_value)

    def __len__(self) -> int:
        return len(self._by_value)

    def find(self, value: int) -> Ev | None:
        """Return the EV of that value, or None: feedback may name any value (§7)."""
        return self._by_value.get(value)

    def on_plane(self, plane: int) -> list[Ev]:
        """Return all EVs of a plane, whatever their state."""
        plane_evs = self._planes.get(plane)
        return plane_evs.members if plane_evs is not None else []

    @property
    def planes(self) -> Collection[int]:
        """Planes that have EVs."""
        return self._planes.keys()

    @property
    def active_count(self) -> int:
        """EVs in the rotation, those of planes whose port is down included."""
        return sum(plane.in_rotation for plane in self._planes.values())

    @property
    def usable_count(self) -> int:
        """EVs in the rotation of planes that are up."""
        return self._usable_count

    @property
    def floor(self) -> int:
        """Least number of EVs that losses and failed probes leave in the rotation of planes that are up.

        `ev_min_active`; by default a quarter of what these planes have.
        """
        return self._floor

    # ---- choice -----------------------------------------------------------------------------------------

    def choose(self, free_ports: int, avoid: Ev | None = None) -> Ev | None:
        """Return the EV of the next packet; None when no usable plane is in the mask `free_ports`.

        Bit p = the port of plane p has room. `avoid`: the EV that just failed this packet; taken only when there is
        no other.
        """
        candidates = free_ports & self.usable_planes
        if not candidates:
            return None
        fallback, turns = False, self._turns
        for _round in range(2):  # what is left of this round, then a whole one
            while self._next_turn < len(turns):
                plane = turns[self._next_turn]
                self._next_turn += 1
                if candidates & plane.bit:
                    ev = plane.next(self._random, avoid)
                    if ev is not None:
                        return ev
                    fallback = True
            self._new_round()
        return avoid if fallback else None

    def other_ev(self, avoid: Ev | None) -> Ev | None:
        """Return an EV in rotation for a probe, of another plane than `avoid` if possible; takes no turn."""
        first = 0 if avoid is None else avoid.plane + 1
        count = max(self._planes) + 1
        for step in range(count):
            plane = (first + step) % count
            if self.usable_planes >> plane & 1:
                evs = [ev for ev in self._planes[plane].order if ev is not avoid]
                if evs:
                    return evs[int(self._random() * len(evs))]
        return avoid if avoid is not None and avoid.active and self.usable_planes >> avoid.plane & 1 else None

    def sibling(self, ev: Ev) -> Ev | None:
        """Return another EV in rotation of the same plane, for a probe.

        None: there is none, or the plane is down.
        """
        if not self.usable_planes >> ev.plane & 1:
            return None
        siblings = [candidate for candidate in self._planes[ev.plane].order if candidate is not ev]
        return siblings[int(self._random() * len(siblings))] if siblings else None

    def spares(self) -> list[Ev]:
        """Return a random GOOD backup of each plane that is up and has one."""
        backups = []
        for number, plane in self._planes.items():
            good_backups = [ev for ev in plane.backups if ev.state is _GOOD] if self.plane_up(number) else []
            if good_backups:
                backups.append(good_backups[int(self._random() * len(good_backups))])
        return backups

    def _new_round(self) -> None:
        if self._rounds == 0:
            shuffle(self._turns, self._random)
            for plane in self._turns:
                if plane.in_rotation > self._rounds:
                    self._rounds = plane.in_rotation
        self._rounds -= 1 if self._rounds else 0
        self._next_turn = 0

    # ---- states -----------------------------------------------------------------------------------------

    def signal(self, ev: Ev, signal: EvSignal, now: float) -> Move | None:
        """Move an EV by the table; None when it stays. Keeps rotation, backups, floor and hold-down in order."""
        if self.observer is None:
            return self._signal(ev, signal, now)
        old_state = ev.state
        move = self._signal(ev, signal, now)
        self.observer(ev, old_state, signal, ev.state, now)
        return move

    def _signal(self, ev: Ev, signal: EvSignal, now: float) -> Move | None:
        old_state = ev.state
        new_state = self._moves[old_state, signal]
        if new_state is old_state:
            return None
        if new_state is _SKIP and self.skips is not None:
            self.skips.append((now + self._config.paths.skip_timer_s, ev))
        plane = self._planes[ev.plane]
        if new_state is _BAD:
            # Keep the last EV of a lossy plane, and never fall below the floor, unless a backup can take the slot.
            last = signal is EvSignal.LOST and plane.in_rotation == 1 and ev.carries()
            kept = last or (self._usable_count <= self._floor and self.plane_up(ev.plane))
            if kept and ev.active and not any(b.state is _GOOD for b in plane.backups):
                ev.held_count += 1
                ev.acked_at_doubt = ev.acked
                return None
            self._hold_down(ev, now)
        ev.state = new_state
        if new_state in (_GOOD, _SKIP):
            # Back from outside the rotation: the EV needs a slot.
            if old_state in (_BAD, _DENIED):
                ev.streak = ev.failures = 0
                self._admit(plane, ev)
            return Move(old_state, new_state, False, None)
        was_active, substitute = ev.active, None
        if was_active:
            substitute = self._withdraw(plane, ev)
        elif ev in plane.backups:
            plane.backups.remove(ev)
        return Move(old_state, new_state, was_active, substitute)

    def least_bad(self) -> Ev | None:
        """Return the EV to be used when there is no other: ASSUMED_BAD, of a plane that is up.

        First comes the one whose probes are answered, then the one that lost the least. None: there is a usable one,
        or no floor, or no such EV.
        """
        if self.usable_planes or not self._floor:
            return None
        bad_evs = [ev for ev in self if ev.state is _BAD and self.plane_up(ev.plane)]
        return min(bad_evs, key=lambda ev: (-ev.streak, ev.lost / max(1, ev.sent)), default=None)

    @property
    def obstacle(self) -> Obstacle | None:
        """Reason that no EV can be used; None when one can."""
        if self.usable_planes:
            return None
        if all(ev.state is _DENIED for ev in self._by_value.values()):
            return Obstacle.DENIED
        planes = {ev.plane for ev in self._by_value.values()}
        return Obstacle.PATHS if any(map(self.plane_up, planes)) else Obstacle.PORTS

    def at_a_loss(self, plane: int) -> bool:
        """Return whether a plane has EVs in rotation, and all of them are in doubt."""
        order = self._planes[plane].order
        return bool(order) and all(ev.in_doubt for ev in order)

    def tick(self, now: float) -> None:
        """End every SKIP whose time is over (skip_mode "timer")."""
        skips = self.skips
        while skips and skips[0][0] <= now:
            ev = skips.popleft()[1]
            if ev.state is _SKIP:
                ev.state = EV_MOVES[_SKIP, EvSignal.TURN_PASSED]

    def _hold_down(self, ev: Ev, now: float) -> None:
        """Set the successes needed for the way back (§5.12).

        Doubled at each fault, halved for each quiet minute between.
        """
        probes = self._config.probes
        if ev.fault_at is not None:
            quiet = int((now - ev.fault_at) / probes.forgive_s)
            ev.needed_streak = max(probes.ok_count, min(ev.needed_streak * 2 >> min(quiet, 64), probes.ok_max))
        ev.fault_at = now
        ev.streak = ev.failures = 0

    def _admit(self, plane: _Plane, ev: Ev) -> None:
        """Put a recovered EV into an empty slot of its plane, else among the backups.

        With `revival_slot` "own" it changes places with its stand-in (§12 row 44).
        """
        stand_in = ev.stand_in
        if plane.in_rotation < plane.size:
            plane.order.append(ev)
            ev.active = True
            self._refresh()
        elif self._config.paths.revival_slot == "own" and stand_in is not None and stand_in.active:
            plane.order[plane.order.index(stand_in)] = ev
            ev.active, stand_in.active = True, False
            plane.backups.append(stand_in)
        else:
            plane.backups.append(ev)

    def _withdraw(self, plane: _Plane, ev: Ev) -> Ev | None:
        """Take an EV out of rotation; a GOOD backup of the same plane, never of another, gets its slot (§5.5)."""
        index = plane.order.index(ev)
        ev.active = False
        ev.stand_in = None
        for i, backup in enumerate(plane.backups):
            if backup.state is _GOOD:
                del plane.backups[i]
                plane.order[index] = backup
                backup.active = True
                ev.stand_in = backup
                return backup
        del plane.order[index]
        if index < plane.cursor:
            plane.cursor -= 1
        self._refresh()
        return None

    # ---- ports ------------------------------------------------------------------------------------------

    def set_ports(self, local: int, peer: int, now: float) -> None:
        """Masks of the planes whose port is up here and at the peer. EV states are kept (§5.5)."""
        ports_before = self._local & self._peer
        self._local, self._peer = local, peer
        self._next_turn = len(self._turns)
        for plane in self._planes:
            if local & peer & ~ports_before & 1 << plane:
                self.up_since[plane] = now
        self._refresh()

    def plane_up(self, plane: int) -> bool:
        """Whether the plane's ports are up at both ends."""
        return bool(self._local & self._peer & 1 << plane)

    def _refresh(self) -> None:
        ports_up, min_active = self._local & self._peer, self._config.paths.ev_min_active
        self.usable_planes = self._usable_count = members = 0
        for number, plane in self._planes.items():
            if ports_up >> number & 1:
                members += len(plane.members)
                self._usable_count += plane.in_rotation
                if plane.in_rotation:
                    self.usable_planes |= 1 << number
        self._floor = max(1, members // 4) if min_active < 0 else min(min_active, members)
