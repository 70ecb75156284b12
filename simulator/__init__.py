"""The virtual-time fabric: unchanged engines, seeded and repeatable networks. See docs/virtual.md."""

from simulator.fabric import VirtualFabric
from simulator.profiles import (
    UNLIMITED,
    HostProfile,
    Line,
    LinkProfile,
    ProfileError,
    QueueProfile,
    Scale,
    scaled,
)
from simulator.workloads import Flow, incast, jain, permutation, rates_bps, run_all

__all__ = [
    "UNLIMITED",
    "Flow",
    "HostProfile",
    "Line",
    "LinkProfile",
    "ProfileError",
    "QueueProfile",
    "Scale",
    "VirtualFabric",
    "incast",
    "jain",
    "permutation",
    "rates_bps",
    "run_all",
    "scaled",
]
