"""Values measured in the packet simulator that no formula gives, for pipes of two depths.

`mrc bench fluid --calibrate` measures them.

A pipe is what a plane holds in a base round trip, in packets: queues are as deep as so many packets make them, and a
packet is a larger part of a short pipe.

A link's queue has two parts. One is that of regular streams which share a link, and has a formula (`streams_delay`): it
grows with the number of QPs that have the link in rotation, for 16 by a third over 8. The other comes from rates that
wander, and is measured. It grows with what the QPs of the rack lack of the line: who is at line rate has no room to
wander. And it is short where the T0's other links have room: marks make an EV miss a turn, and its packets go there. So
it is a table by load, of which a part is the mean of the T0's links in that plane (`relief`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, log2, pi, sqrt
from typing import Final, NamedTuple

import numpy as np

from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, Singles

LOAD_MAX: Final = 1.25
LOAD_STEPS: Final = 1000
RATE_STEPS: Final = 1000
DELAY_MAX: Final = 2.0
DELAY_STEPS: Final = 500
PLANES: Final = 4
"""Planes of the fabrics that `price` was measured on."""
STREAMS_MAX: Final = 128
"""More streams that share a link count as so many."""
OVERLOAD_DELAY: Final = 20.0
"""Delay beyond the last measured load, base round trips per unit of load: feedback ends it."""
BURST_POWER: Final = 2.5
"""Power with which bursts grow by a QP's rate, and fall by its application's window."""
WINDOW_MIN: Final = 2.0
"""Smallest window of an application with measured bursts, base round trips of all planes."""
FAR: Final = 20.0
"""Argument beyond which exp(z * z) * erfc(z) is its limit."""


class Tables(NamedTuple):
    """Values at equal steps: LOAD_STEPS, DELAY_STEPS or RATE_STEPS to the unit."""

    streams: Singles
    """[streams - 1, load]: delay of so many regular streams."""
    wander: Singles
    """Delay by load beyond that of regular streams, for a rack whose QPs have no rate."""
    marks: Singles
    """Share of the packets that a link marks, by delay."""
    trims: Singles
    """Price at rate 1 of the packets that a link trims, by delay."""
    wanted: Singles
    """Price by rate under which NSCC's window holds."""


@dataclass(frozen=True)
class Calibration:
    """Values measured on fabrics of 16 to 48 hosts; loads and rates are shares of a link's payload rate."""

    packets: float
    """Packets in the pipe of the measured fabric."""
    top: float
    """Rate of a QP that nothing holds back: SACKs and the NIC's own gaps take the rest."""
    wire: float
    """Load of the wire for each that the payload makes, where queues stand: SACKs and retransmissions."""
    loads: tuple[float, ...]
    wander: tuple[float, ...]
    """Queueing delay at each of `loads` beyond that of regular streams, in base round trips.

    Where the rack's QPs have no rate: see `steady`.
    """
    steady: float
    """Part of `wander` that is gone where the rack's QPs are at line rate."""
    relief: float
    """Part that the mean load of the T0's links in a plane has in the load by which `wander` is read."""
    delays: tuple[float, ...]
    marks: tuple[float, ...]
    """Share of packets that a link marks at each of `delays`: each makes its EV miss a turn."""
    trims: tuple[float, ...]
    """Share of packets that a link trims at each of `delays`."""
    trim_price: float
    """Delay that is worth the trim of every packet at rate 1, base round trips.

    A trim takes a packet off the window, so NSCC holds at a smaller delay.
    """
    rates: tuple[float, ...]
    price: tuple[float, ...]
    """Mean price of links between T0s under which NSCC's window holds, at each of `rates`.

    NSCC holds the whole delay, and that is the price at rate 0; what is not in here stands in the NIC's ring and at the
    last hop.
    """
    planes_price: float
    """Price that is held more for each doubling of PLANES: a packet more or less moves a larger window less."""
    bursts: float
    """Delay in the NIC's ring of a QP with rate 1 whose application has one base round trip outstanding.

    A message that completes lets the next one leave at once. See BURST_POWER.
    """
    retire_rtts: float
    """Base round trips from an EV's first lost packet until the EV is retired."""
    found_rtts: float
    """Base round trips from a lost packet's departure until it is found lost."""
    timer_rtts: float
    """Base round trips until the retry timer finds a lost packet: four round trips under load."""
    own_delay_rtts: float
    """Round trip under load, beyond the base: what the window turns over in."""
    lost: float
    """Packets lost for each that the rate gives.

    Retransmissions are lost too, and answers on their way back.
    """
    lost_young: float
    """Packets lost for each that the rate gives, in the first round trips of a QP."""
    notice_rtts: float
    """Base round trips from the end of a NIC port until its peers have withdrawn the plane."""

    @lru_cache(maxsize=8)  # noqa: B019 - calibrations are few and live as long as the program
    def tables(self, planes: int) -> Tables:
        """Return the tables at equal steps, for a fabric of so many planes."""
        loads = np.arange(int(LOAD_MAX * LOAD_STEPS) + 1) / LOAD_STEPS
        wander = np.interp(loads, self.loads, self.wander)
        lowest = int(wander.argmin())
        wander[lowest:] = np.maximum.accumulate(wander[lowest:])
        delays = np.arange(int(DELAY_MAX * DELAY_STEPS) + 1) / DELAY_STEPS
        rates = np.arange(RATE_STEPS + 1) / RATE_STEPS
        wanted = np.interp(rates, self.rates, self.price) + self.planes_price * log2(planes / PLANES)
        # A faster QP never holds more, or it would starve a slower one beside it.
        wanted = np.maximum.accumulate(wanted[::-1])[::-1]
        return Tables(
            np.stack([self.streams_delay(loads, max(2, count)) for count in range(1, STREAMS_MAX + 1)]).astype(
                np.float32
            ),
            wander.astype(np.float32),
            np.interp(delays, self.delays, self.marks).astype(np.float32),
            (self.trim_price * np.interp(delays, self.delays, self.trims)).astype(np.float32),
            wanted.astype(np.float32),
        )

    def streams_delay(self, loads: Floats, streams: int) -> Floats:
        """Return the queueing delay of regular streams that share a link, in base round trips.

        Of n streams of equal periods the queue exceeds x packets with probability exp(-2 x (x / n + 1 - load)), the
        Brownian bridge's bound; for many streams it is that of random arrivals.
        """
        wire_loads = np.minimum(loads * self.wire, 1.0)
        spread, slack = 2.0 / streams, 2.0 * (1.0 - wire_loads)
        root = sqrt(spread)
        packets = [
            0.5 * sqrt(pi / spread) * exp((s / 2 / root) ** 2) * erfc(s / 2 / root) if s / 2 / root < FAR else 1 / s
            for s in slack.tolist()
        ]
        delay: Floats = wire_loads * np.array(packets) / self.packets
        return delay

    def bursts_of(self, windows: Floats) -> Singles:
        """Return the factor of rate ** BURST_POWER by which a QP's price falls, from its application's window.

        `windows`: in base round trips of all planes.
        """
        return (self.bursts / np.maximum(windows, WINDOW_MIN) ** BURST_POWER).astype(np.float32)


CALIBRATIONS: Final = (
    Calibration(
        packets=10.72,
        top=0.9534,
        wire=1.1257,
        loads=(0.0, 0.3771, 0.4608, 0.5617, 0.6428, 0.7096, 0.7592, 0.7999, 0.8341, 0.8619, 0.8899, 0.9159, 0.9479),
        wander=(0.0, 0.0019, -0.0016, -0.0019, 0.0154, 0.0803, 0.2381, 0.5138, 0.8544, 1.1794, 1.3567, 1.3797, 1.3986),
        steady=0.9,
        relief=0.25,
        delays=(0.0, 0.0212, 0.0708, 0.1224, 0.1728, 0.2472, 0.3475, 0.4436, 0.5375, 0.6954),
        marks=(0.0, 0.0, 0.0021, 0.0118, 0.029, 0.0638, 0.1205, 0.1743, 0.2165, 0.2773),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0002, 0.0012, 0.0047, 0.018, 0.0336, 0.0737),
        trim_price=6.36,
        rates=(0.0, 0.4071, 0.5687, 0.6213, 0.6751, 0.7285, 0.7779, 0.82, 0.8547, 0.8798, 0.8985, 0.92, 0.9534),
        price=(0.5196, 0.4925, 0.468, 0.4665, 0.4419, 0.4217, 0.4002, 0.3645, 0.3251, 0.2605, 0.2619, 0.2551, 0.0541),
        planes_price=0.0157,
        bursts=1.914,
        retire_rtts=4.0,
        found_rtts=4.4,
        timer_rtts=6.0,
        own_delay_rtts=0.66,
        lost=1.1,
        lost_young=1.18,
        notice_rtts=1.0,
    ),
    Calibration(
        packets=29.5,
        top=0.9894,
        wire=1.0412,
        loads=(
            0.0,
            0.3758,
            0.4664,
            0.5644,
            0.6461,
            0.7175,
            0.7603,
            0.8007,
            0.835,
            0.8643,
            0.8937,
            0.9191,
            0.9434,
            0.9756,
        ),
        wander=(0.0, 0.0075, 0.0056, 0.0, 0.0, 0.0105, 0.0222, 0.0714, 0.1416, 0.2936, 0.6708, 1.3043, 2.1617, 3.393),
        steady=0.9,
        relief=0.15,
        delays=(0.0, 0.0165, 0.0702, 0.1232, 0.1749, 0.2499, 0.3522, 0.449, 0.5383, 0.7642),
        marks=(0.0, 0.0, 0.0017, 0.0106, 0.0265, 0.0642, 0.1414, 0.2067, 0.2561, 0.3709),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0001, 0.0004, 0.0035, 0.0111, 0.0314),
        trim_price=9.72,
        rates=(0.0, 0.56, 0.6348, 0.6766, 0.729, 0.7733, 0.8249, 0.856, 0.8832, 0.8994, 0.9257, 0.9533, 0.9651, 0.9878),
        price=(
            1.0318,
            1.0349,
            1.0206,
            0.9704,
            1.0219,
            0.9958,
            0.9768,
            0.9643,
            0.9468,
            0.9384,
            0.8924,
            0.7154,
            0.5827,
            0.4506,
        ),
        planes_price=-0.0205,
        bursts=0.293,
        retire_rtts=4.0,
        found_rtts=4.4,
        timer_rtts=6.0,
        own_delay_rtts=0.5,
        lost=1.1,
        lost_young=1.18,
        notice_rtts=1.0,
    ),
)


def calibration_for(shape: FabricShape) -> Calibration:
    """Return the calibration whose pipe is nearest in depth."""
    return min(CALIBRATIONS, key=lambda calibration: abs(np.log(calibration.packets / shape.packets_per_rtt)))
