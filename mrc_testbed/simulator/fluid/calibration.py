"""Values measured in the packet simulator that no formula gives, for pipes of two depths.

`mrc bench fluid --calibrate` measures them.

A pipe is what a plane holds in a base round trip, in packets: queues are as deep as so many packets make them, and a
packet is a larger part of a short pipe.

A link's queue has two parts. One is that of regular streams which share a link, and has a formula (`streams_delay`): it
grows with their number, for a rack of 16 NICs by a third over one of 8. The other comes from rates that wander, and is
measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, pi, sqrt
from typing import Final

import numpy as np

from mrc_testbed.hosts.engine.cc.nscc import ALPHA, REFERENCE_PACKETS
from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, Singles

LOAD_MAX: Final = 1.25
LOAD_STEPS: Final = 1000
RATE_STEPS: Final = 1000
OVERLOAD_DELAY: Final = 20.0
"""Delay beyond the last measured load, base round trips per unit of load: feedback ends it."""
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
    def tables(self, streams: int) -> tuple[Singles, Singles, Singles, Singles]:
        """Return delay, skips and the price of trims at rate 1 by load, and price by rate, at equal steps.

        `streams`: NICs that share a rack's links.
        """
        loads = np.arange(int(LOAD_MAX * LOAD_STEPS) + 1) / LOAD_STEPS
        delay = np.interp(loads, self.loads, self.wander) + self.streams_delay(loads, streams)
        delay += OVERLOAD_DELAY * np.maximum(0.0, loads - self.loads[-1])
        delay = np.maximum.accumulate(np.maximum(0.0, delay))
        rates = np.arange(RATE_STEPS + 1) / RATE_STEPS
        return (
            delay.astype(np.float32),
            np.interp(delay, self.delays, self.marks).astype(np.float32),
            (TRIM_PRICE * np.interp(delay, self.delays, self.trims)).astype(np.float32),
            np.interp(rates, self.rates, self.price).astype(np.float32),
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
        wire=1.12,
        loads=(
            0.0,
            0.3225,
            0.4642,
            0.5645,
            0.6338,
            0.7156,
            0.7592,
            0.8033,
            0.8349,
            0.8635,
            0.8902,
            0.9156,
            0.9384,
            0.9735,
        ),
        wander=(
            0.0,
            -0.0088,
            -0.0096,
            -0.0126,
            -0.0095,
            -0.0001,
            0.0138,
            0.0867,
            0.1451,
            0.2117,
            0.3484,
            0.5194,
            0.5171,
            0.6438,
        ),
        delays=(0.0, 0.0175, 0.0705, 0.1231, 0.1755, 0.2395, 0.3464, 0.4445, 0.5459, 0.6765),
        marks=(0.0, 0.0, 0.0017, 0.0114, 0.0279, 0.0578, 0.1238, 0.1825, 0.2134, 0.306),
        trims=(0.0, 0.0, 0.0, 0.0, 0.0002, 0.0009, 0.0042, 0.0143, 0.0298, 0.062),
        rates=(0.4145, 0.5563, 0.6265, 0.6776, 0.7249, 0.7756, 0.819, 0.8601, 0.881, 0.8971, 0.9207, 0.9517, 0.9643),
        price=(0.4306, 0.4365, 0.4205, 0.3994, 0.4026, 0.3934, 0.3586, 0.2837, 0.2109, 0.1869, 0.1756, 0.0609, 0.0706),
        bursts=1.8,
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
