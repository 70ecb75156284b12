"""Forwarding modes: which P4 program, who chooses the T1, and which EVs a QP has (mrc-protocol §8)."""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from random import Random

from mrc_testbed.topologies.plan.addressing import PlanError, make_ev

ECMP_EVS_PER_UPLINK = 4
"""EVs a plane in ECMP mode, for each uplink of a T0: enough that every uplink is hit, most likely."""


class Mode(str, Enum):
    """Forwarding mode of a fabric. The values are those of `--mode`."""

    SRV6 = "srv6"
    """uSIDs of the outer address name every hop; the EV is plane and uplink."""
    STEV = "stev"
    """Structured EV: the source's T0 reads the uplink from the EV; the same EVs as srv6, no outer header."""
    ECMP = "ecmp"
    """Switches hash addresses, ports and flow label; EVs are random, with the plane kept beside each."""
    SWITCH_SPRAY = "switch-spray"
    """The T0 throws a die for each packet; one EV a plane."""
    FLOW_ECMP = "flow-ecmp"
    """The ECMP of today's networks: a QP keeps one EV, hence one plane and one path."""

    def __str__(self) -> str:
        return self.value

    @property
    def program(self) -> str:
        """P4 program of every switch."""
        return "srv6" if self is Mode.SRV6 else "spray"

    @property
    def choice(self) -> str | None:
        """Choice of the uplink at a T0 of spray.p4: "structured", "hash" or "random"; None in srv6.p4."""
        return _CHOICES[self]

    @property
    def ev_is_path(self) -> bool:
        """Whether the EV names its path (§8.3), so that it can be located, traced and denied."""
        return self in (Mode.SRV6, Mode.STEV)

    @property
    def outer_header(self) -> bool:
        """Whether packets travel in an outer IPv6 header of 40 bytes."""
        return self is Mode.SRV6

    @classmethod
    def from_name(cls, name: str | Mode) -> Mode:
        """Return the mode of that name. Raises PlanError listing them."""
        try:
            return cls(name)
        except ValueError:
            names = [mode.value for mode in cls]
            close = get_close_matches(str(name), names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise PlanError(f"no mode {name!r} ({hint}has: {', '.join(names)})") from None


_CHOICES = {
    Mode.SRV6: None,
    Mode.STEV: "structured",
    Mode.ECMP: "hash",
    Mode.SWITCH_SPRAY: "random",
    Mode.FLOW_ECMP: "hash",
}


def ev_planes(mode: Mode, uplinks: tuple[tuple[int, ...], ...], seed: str) -> tuple[tuple[int, int], ...]:
    """(EV, plane) pairs of a QP; `uplinks`: the paths of each plane, by T0 uplink ((0,) inside a rack).

    srv6, stev: one a path, plane by plane. ecmp: random, all distinct, as many in each plane as its paths ask for.
    switch-spray: one a plane. flow-ecmp: a single one. A plane without a path has none. Equal seeds give equal EVs.
    """
    if mode.ev_is_path:
        return _path_evs(uplinks)
    planes = [plane for plane, numbers in enumerate(uplinks) if numbers]
    if mode is Mode.SWITCH_SPRAY or not planes:
        return tuple((make_ev(plane, 0), plane) for plane in planes)
    rng = Random(f"{mode.value}/{seed}")
    if mode is Mode.FLOW_ECMP:
        return ((rng.getrandbits(32), planes[rng.randrange(len(planes))]),)
    # A pair inside a rack has one way a plane, whichever EV; plane after plane in turn, as long as each wants more.
    counts = [ECMP_EVS_PER_UPLINK * len(uplinks[plane]) if len(uplinks[plane]) > 1 else 1 for plane in planes]
    order = [plane for turn in range(max(counts)) for plane, count in zip(planes, counts, strict=True) if turn < count]
    planes_by_ev: dict[int, int] = {}
    while len(planes_by_ev) < len(order):
        planes_by_ev.setdefault(rng.getrandbits(32), order[len(planes_by_ev)])
    return tuple(planes_by_ev.items())


@lru_cache(maxsize=256)
def _path_evs(uplinks: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((make_ev(plane, uplink), plane) for plane, numbers in enumerate(uplinks) for uplink in numbers)
