"""Values measured in the packet simulator that no formula gives, for pipes of two depths.

`mrc bench fluid --calibrate` measures them.

A pipe is what a plane holds in a base round trip, in packets: queues are as deep as so many packets make them, and a
packet is a larger part of a short pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mrc_testbed.simulator.fluid.shape import FabricShape, Singles

LOAD_MAX: Final = 1.25
LOAD_STEPS: Final = 1000
RATE_STEPS: Final = 1000


@dataclass(frozen=True)
class Calibration:
    """Values measured on fabrics of 16 and 32 hosts; loads and rates are shares of a link's payload rate."""

    packets: float
    """Packets in the pipe of the measured fabric."""
    top: float
    """Rate of a QP that nothing holds back: SACKs and the NIC's own gaps take the rest."""
    loads: tuple[float, ...]
    delay: tuple[float, ...]
    """Queueing delay of a link at each of `loads`, in base round trips."""
    skips: tuple[float, ...]
    """Turns that an EV misses for each turn it takes, by marks of a link at each of `loads`."""
    rates: tuple[float, ...]
    price: tuple[float, ...]
    """Mean queueing delay between T0s under which NSCC's window holds, at each of `rates`."""
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

    @cached_property
    def _tables(self) -> tuple[Singles, Singles, Singles]:
        loads = np.arange(int(LOAD_MAX * LOAD_STEPS) + 1) / LOAD_STEPS
        rates = np.arange(RATE_STEPS + 1) / RATE_STEPS
        return (
            np.interp(loads, self.loads, self.delay).astype(np.float32),
            np.interp(loads, self.loads, self.skips).astype(np.float32),
            np.interp(rates, self.rates, self.price).astype(np.float32),
        )

    def tables(self) -> tuple[Singles, Singles, Singles]:
        """Return delay and skips by load, and price by rate, at equal steps."""
        return self._tables

    def steps(self) -> tuple[float, float, float]:
        """Return the number of steps per unit of each table."""
        return LOAD_STEPS, LOAD_STEPS, RATE_STEPS


CALIBRATIONS: Final = (
    Calibration(
        packets=10.7,
        top=0.954,
        loads=(0.0, 0.6, 0.7, 0.76, 0.8, 0.84, 0.88, 0.92, 0.96, 1.0),
        delay=(0.0, 0.0, 0.0411, 0.0504, 0.1262, 0.1696, 0.3767, 0.4068, 0.4068, 2.025),
        skips=(0.0, 0.0, 0.0458, 0.0571, 0.0915, 0.1059, 0.1928, 0.2696, 0.2696, 0.8386),
        rates=(0.3, 0.6, 0.75, 0.82, 0.87, 0.92, 0.9546),
        price=(0.32, 0.2658, 0.2658, 0.2234, 0.1903, 0.0325, 0.0167),
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
        loads=(0.0, 0.6, 0.7, 0.76, 0.8, 0.84, 0.88, 0.92, 0.96, 1.0),
        delay=(0.0, 0.0, 0.0063, 0.0422, 0.0422, 0.057, 0.057, 0.057, 0.182, 1.2053),
        skips=(0.0, 0.0155, 0.018, 0.0524, 0.1096, 0.2486, 0.2486, 0.5245, 0.6579, 0.6579),
        rates=(0.3, 0.6, 0.75, 0.82, 0.87, 0.92, 0.9876),
        price=(0.4464, 0.3114, 0.2317, 0.2317, 0.2155, 0.2155, 0.0347),
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
