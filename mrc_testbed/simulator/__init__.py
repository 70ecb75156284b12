"""The virtual-time fabric: unchanged engines, seeded and repeatable networks. See docs/virtual.md."""

from mrc_testbed.native_build import use

use()

from mrc_testbed.simulator.fabric import VirtualFabric  # noqa: E402 - after use(), which decides where modules come from
from mrc_testbed.simulator.profiles import (  # noqa: E402
    UNLIMITED_QUEUES,
    HostProfile,
    Line,
    LinkProfile,
    ProfileError,
    QueueProfile,
    Scale,
    scaled_profiles,
)
from mrc_testbed.simulator.workloads import Flow, incast, jain, permutation, rates_bps, run_all  # noqa: E402

__all__ = [
    "UNLIMITED_QUEUES",
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
    "scaled_profiles",
]
