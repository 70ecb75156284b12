"""NICs: an agent's packets to and from the wire. `open_nic` opens one by kind."""

from __future__ import annotations

from mrc_testbed.native_build import use

use()

from mrc_testbed.hosts.engine.config import Config  # noqa: E402 - after use()
from mrc_testbed.hosts.nic.base import Nic, NicError  # noqa: E402
from mrc_testbed.hosts.nic.paced import PacedNic  # noqa: E402
from mrc_testbed.topologies.plan import Host, Plan  # noqa: E402

__all__ = ["KINDS", "Nic", "NicError", "PacedNic", "open_nic"]

KINDS = ("fast", "scapy")


def open_nic(kind: str, plan: Plan, host: Host, config: Config, hooks: list[str] | None = None) -> Nic:
    """Return a NIC of that kind with its ports open, paced at the plan's rates if any. Raises NicError."""
    nic = _open(kind, plan, host, config, hooks)
    speeds = {plane: plan.speed(plan.link_of_interface(port.interface)) for plane, port in nic.ports.items()}
    rates = {plane: speed.rate_bps for plane, speed in speeds.items() if speed.rate_bps is not None}
    return PacedNic(nic, rates, config.dscp.control) if rates else nic


def _open(kind: str, plan: Plan, host: Host, config: Config, hooks: list[str] | None) -> Nic:
    if kind == "fast":
        if hooks:
            raise NicError("--hook needs --nic scapy: the fast NIC makes no scapy packets")
        from mrc_testbed.hosts.nic.fast import FastNic

        return FastNic(plan, host, config)
    if kind == "scapy":
        from mrc_testbed.hosts.nic.scapy_nic import ScapyNic

        return ScapyNic(plan, host, config, hooks or [])
    raise NicError(f"no NIC {kind!r} (has: {', '.join(KINDS)})")
