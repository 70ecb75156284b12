"""Values measured in the packet simulator that no formula gives, for pipes of two depths.

`mrc bench fluid --calibrate` measures them.

A pipe is what a plane holds in a base round trip, in packets: queues are as deep as so many packets make them, and a
packet is a larger part of a short pipe.

A link's queue has two parts. One is that of regular streams which share a link, and has a formula (`streams_delay`): it
grows with their number, for a rack of 16 NICs by a third over one of 8. The other comes from rates that wander, and is
measured. Both follow what is offered to the wire, trimmed packets included. SACKs are a tenth of that: those of the
packets the other way, spread over the rack's links. Where a T0's other links have room, marks send packets there, and
the queue is shorter (`relief`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, log2, pi, sqrt
from typing import Final

import numpy as np

from mrc_testbed.hosts.engine.cc.nscc import ALPHA, REFERENCE_PACKETS
from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, Singles

LOAD_MAX: Final = 1.25
LOAD_STEPS: Final = 1000
RATE_STEPS: Final = 1000
PLANES: Final = 4
"""Planes of the fabrics that `price` was measured on."""
BURST_POWER: Final = 2.5
"""Power with which bursts grow by a QP's rate, and fall by its application's window."""
WINDOW_MIN: Final = 2.0
"""Smallest window of an application with measured bursts, base round trips of all planes."""
TRIM_PRICE: Final = REFERENCE_PACKETS / ALPHA / 2
"""Delay that is worth the trim of every packet at rate 1, base round trips.

A trim takes a packet off the window. A round trip without delay adds ALPHA packets in a pipe of REFERENCE_PACKETS, and
less by the delay's share of the target: so trims let NSCC hold at a smaller delay. Half of that was measured, since
decreases become rarer too.
"""
FAR: Final = 20.0
"""Argument beyond which exp(z * z) * erfc(z) is its limit."""


@dataclass(frozen=True)
class Calibration:
    """Values measured on fabrics of 16 to 48 hosts; loads and rates are shares of a link's payload rate."""

    packets: float
    """Packets in the pipe of the measured fabric."""
    top: float
    """Rate of a QP that nothing holds back: SACKs and the NIC's own gaps take the rest."""
    wire: float
    """Load of the wire for each that the payload makes, where queues stand: SACKs and retransmissions."""
    sacks: float
    """Part of the wire's load that is SACKs of packets the other way.

    They are spread over a T0's links of a plane.
    """
    relief: float
    """Part that the mean of a T0's links in a plane has in the load by which a link's queue is read."""
    overload: float
    """Delay beyond the last of `loads`, base round trips per unit of load."""
    eta: float
    """Change of a rate in a sweep for each unit that its price is off: rates swing where it is too large."""
    loads: tuple[float, ...]
    wander: tuple[float, ...]
    """Queueing delay at each of `loads` beyond that of regular streams, in base round trips."""
    delays: tuple[float, ...]
    marks: tuple[float, ...]
    """Share of packets that a link marks at each of `delays`: each makes its EV miss a turn."""
    trims: tuple[float, ...]
    """Share of packets that a link trims at each of `delays`: each costs what TRIM_PRICE says."""
    rates: tuple[float, ...]
    price: tuple[float, ...]
    """Mean price of links between T0s under which NSCC's window holds, at each of `rates`.

    NSCC holds the whole delay; what is not in here stands in the NIC's ring and at the last hop.
    """
    planes_price: float
    """Price that is held more for each doubling of PLANES."""
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
    def tables(self, streams: int, planes: int = PLANES) -> tuple[Singles, Singles, Singles, Singles]:
        """Return delay, skips and the price of trims at rate 1 by load, and price by rate, at equal steps.

        `streams`: NICs that share a rack's links. What a full link cannot carry is trimmed.
        """
        loads = np.arange(int(LOAD_MAX * LOAD_STEPS) + 1) / LOAD_STEPS
        delay = np.interp(loads, self.loads, self.wander) + self.streams_delay(loads, streams)
        delay += self.overload * np.maximum(0.0, loads - self.loads[-1])
        delay = np.maximum.accumulate(np.maximum(0.0, delay))
        trims = np.interp(delay, self.delays, self.trims)
        excess = 1 - 1 / (np.maximum(loads, self.loads[-1]) * self.wire)
        trims = np.where(loads > self.loads[-1], np.maximum(trims, excess), trims)
        rates = np.arange(RATE_STEPS + 1) / RATE_STEPS
        price = np.interp(rates, self.rates, self.price) + self.planes_price * log2(planes / PLANES)
        return (
            delay.astype(np.float32),
            np.interp(delay, self.delays, self.marks).astype(np.float32),
            (TRIM_PRICE * trims).astype(np.float32),
            price.astype(np.float32),
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

    def steps(self) -> tuple[float, float, float, float]:
        """Return the number of steps per unit of each table."""
        return LOAD_STEPS, LOAD_STEPS, LOAD_STEPS, RATE_STEPS

    def bursts_of(self, windows: Floats) -> Singles:
        """Return the factor of rate ** BURST_POWER by which a QP's price falls, from its application's window.

        `windows`: in base round trips of all planes.
        """
        return (self.bursts / np.maximum(windows, WINDOW_MIN) ** BURST_POWER).astype(np.float32)


CALIBRATIONS: Final = (
    Calibration(
        packets=10.7,
        top=0.953,
        wire=1.14,
        sacks=0.106,
        relief=0.15,
        overload=1.5,
        eta=0.2,
        loads=(
            0.0,
            0.319,
            0.4427,
            0.5575,
            0.6427,
            0.7119,
            0.76,
            0.7964,
            0.8199,
            0.8388,
            0.8595,
            0.8783,
            0.9013,
            0.9306,
            0.9669,
            1.0253,
        ),
        wander=(
            0.0,
            -0.0103,
            -0.0089,
            -0.0081,
            -0.0119,
            -0.0009,
            0.031,
            0.0895,
            0.1594,
            0.2617,
            0.366,
            0.4395,
            0.4929,
            0.5743,
            0.6297,
            0.702,
        ),
        delays=(0.0, 0.0184, 0.071, 0.1238, 0.1732, 0.2444, 0.3461, 0.4498, 0.5409, 0.6403, 0.7446, 0.8332),
        marks=(0.0, 0.0, 0.0019, 0.0118, 0.0276, 0.059, 0.1208, 0.1782, 0.2237, 0.2761, 0.307, 0.307),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0002, 0.0009, 0.004, 0.0146, 0.0285, 0.0418, 0.075, 0.1349),
        # Of 64 to 1,024 hosts, where 0.51 of a round trip is held in all; with 32 hosts it is up to 0.02 less.
        rates=(0.0, 0.53, 0.645, 0.73, 0.775, 0.82, 0.855, 0.883, 0.92, 0.953),
        price=(0.497, 0.4555, 0.4407, 0.419, 0.3925, 0.3559, 0.2981, 0.2401, 0.1866, 0.0879),
        planes_price=0.02,
        bursts=1.1,
        retire_rtts=4.0,
        found_rtts=4.4,
        timer_rtts=6.0,
        own_delay_rtts=0.66,
        lost=1.10,
        lost_young=1.18,
        notice_rtts=1.0,
    ),
    Calibration(
        packets=29.5,
        top=0.989,
        wire=1.04,
        sacks=0.0,
        relief=0.0,
        # Full links of four packet runs (64 hosts) have 0.5 of a round trip at 0.97, 0.7 to 0.95 between 1 and 1.4.
        overload=2.0,
        eta=0.1,
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
        delays=(0.0, 0.0107, 0.0719, 0.1211, 0.174, 0.2474, 0.3538, 0.4457, 0.5396, 0.7777),
        marks=(0.0, 0.0, 0.0021, 0.0092, 0.0231, 0.0611, 0.1441, 0.2064, 0.2501, 0.3846),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0007, 0.004, 0.0116, 0.0396),
        rates=(0.5502, 0.6251, 0.6731, 0.7197, 0.7834, 0.8276, 0.8571, 0.8814, 0.9016, 0.9248, 0.9506, 0.967, 0.9889),
        price=(0.5106, 0.5748, 0.4626, 0.4314, 0.4997, 0.5693, 0.5418, 0.4999, 0.5057, 0.4785, 0.3768, 0.1756, 0.0429),
        planes_price=0.0,
        bursts=1.8,
        retire_rtts=4.0,
        found_rtts=4.4,
        timer_rtts=6.0,
        own_delay_rtts=0.5,
        lost=1.10,
        lost_young=1.18,
        notice_rtts=1.0,
    ),
)


def calibration_for(shape: FabricShape) -> Calibration:
    """Return the calibration whose pipe is nearest in depth."""
    return min(CALIBRATIONS, key=lambda calibration: abs(np.log(calibration.packets / shape.packets_per_rtt)))
