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
from math import erfc, exp, pi, sqrt
from typing import Final, NamedTuple

import numpy as np

from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, Singles

LOAD_MAX: Final = 1.25
LOAD_STEPS: Final = 1000
RATE_STEPS: Final = 1000
DELAY_MAX: Final = 2.0
DELAY_STEPS: Final = 500
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
    def tables(self) -> Tables:
        """Return the tables at equal steps."""
        loads = np.arange(int(LOAD_MAX * LOAD_STEPS) + 1) / LOAD_STEPS
        wander = np.interp(loads, self.loads, self.wander)
        lowest = int(wander.argmin())
        wander[lowest:] = np.maximum.accumulate(wander[lowest:])
        delays = np.arange(int(DELAY_MAX * DELAY_STEPS) + 1) / DELAY_STEPS
        rates = np.arange(RATE_STEPS + 1) / RATE_STEPS
        wanted = np.interp(rates, self.rates, self.price)
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
        top=0.9539,
        wire=1.126,
        loads=(0.0, 0.3771, 0.459, 0.5613, 0.6433, 0.7104, 0.7592, 0.7999, 0.8342, 0.8614, 0.8899, 0.9159, 0.9479),
        wander=(0.0, 0.0012, -0.0022, -0.0024, 0.0118, 0.0643, 0.1834, 0.4131, 0.6769, 0.9558, 1.1119, 1.1861, 1.2057),
        steady=0.8,
        relief=0.25,
        delays=(0.0, 0.0205, 0.0713, 0.1224, 0.1726, 0.2475, 0.3469, 0.4438, 0.537, 0.6576),
        marks=(0.0, 0.0, 0.0022, 0.0119, 0.029, 0.0639, 0.1189, 0.1733, 0.2165, 0.2658),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0003, 0.0012, 0.0048, 0.0183, 0.0344, 0.0554),
        trim_price=5.05,
        rates=(0.0, 0.4071, 0.5661, 0.6241, 0.6747, 0.728, 0.7786, 0.8198, 0.8543, 0.8805, 0.8988, 0.9188, 0.9534),
        price=(0.5211, 0.4915, 0.4717, 0.459, 0.4463, 0.4275, 0.4027, 0.3719, 0.3297, 0.263, 0.2765, 0.2594, 0.0659),
        bursts=2.51,
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
        top=0.989,
        wire=1.04,
        loads=(
            0.0,
            0.3326,
            0.4832,
            0.5431,
            0.6509,
            0.7069,
            0.7635,
            0.8009,
            0.8351,
            0.8663,
            0.8941,
            0.9183,
            0.9475,
            0.9702,
        ),
        wander=(
            0.0,
            -0.0028,
            -0.0027,
            -0.004,
            -0.0034,
            -0.0041,
            -0.0037,
            -0.0036,
            -0.0007,
            0.0077,
            0.0568,
            0.1209,
            0.3048,
            0.3986,
        ),
        steady=1.0,
        relief=0.2,
        delays=(0.0, 0.0107, 0.0719, 0.1211, 0.174, 0.2474, 0.3538, 0.4457, 0.5396, 0.7777),
        marks=(0.0, 0.0, 0.0021, 0.0092, 0.0231, 0.0611, 0.1441, 0.2064, 0.2501, 0.3846),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0007, 0.004, 0.0116, 0.0396),
        trim_price=28.0,
        rates=(0.5502, 0.6251, 0.6731, 0.7197, 0.7834, 0.8276, 0.8571, 0.8814, 0.9016, 0.9248, 0.9506, 0.967, 0.9889),
        price=(0.5106, 0.5748, 0.4626, 0.4314, 0.4997, 0.5693, 0.5418, 0.4999, 0.5057, 0.4785, 0.3768, 0.1756, 0.0429),
        bursts=1.8,
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
