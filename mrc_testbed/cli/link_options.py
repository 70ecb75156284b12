"""Options of links (`--rate 10M --delay 1.25ms`) and their plan, for `mrc up` and the Python API.

Said for both tiers, or for one: NIC-T0 (`host`) or T0-T1 (`fabric`). Defaults follow §11.4: 10 Mb/s, a path
MTU of 1024, and delays that make the base RTT 10 ms; on a slow machine rates are divided and the RTT multiplied by its
slowdown (topologies/lab/machine_speed.py). Without any rate: no delays, a path MTU of 4096, as fast as the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from mrc_testbed.console import units
from mrc_testbed.console.units import UnitError
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    import typer  # the Python API does without; `expand_options` has it

    from mrc_testbed.cli import completion as offer
    from mrc_testbed.topologies.plan import Plan

NO_LIMIT = "none"
UNLIMITED_PMTU = 4096


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Options as given; None: not given. A tier's own option wins over that for both."""

    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            autocompletion=offer.one_of(*offer.MODES),
            help="Forwarding: `srv6`, `stev`, `ecmp`, `switch-spray` or `flow-ecmp`.",
        ),
    ] = "srv6"
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            autocompletion=offer.one_of(*offer.RATES),
            help="Rate of every link, e.g. 10M (bits/s), or `none`. Default: 10M, less on a slow machine.",
        ),
    ] = None
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", help="One-way delay of every link, e.g. 1.25ms. Default: base RTT of 10 ms; 0 without rate."
        ),
    ] = None
    host_rate: Annotated[str | None, typer.Option("--host-rate", help="Rate of NIC-T0 links alone.")] = None
    host_delay: Annotated[str | None, typer.Option("--host-delay", help="Delay of NIC-T0 links alone.")] = None
    fabric_rate: Annotated[str | None, typer.Option("--fabric-rate", help="Rate of T0-T1 links alone.")] = None
    fabric_delay: Annotated[str | None, typer.Option("--fabric-delay", help="Delay of T0-T1 links alone.")] = None
    pmtu: Annotated[
        int | None,
        typer.Option("--pmtu", help="Path MTU, payload bytes of a packet. Default: 1024; 4096 without rate."),
    ] = None

    @property
    def are_usual(self) -> bool:
        """Whether no rate and no delay was given."""
        return not any((self.rate, self.delay, self.host_rate, self.host_delay, self.fabric_rate, self.fabric_delay))

    def plan(self, planes: int, racks: int, spines: int, hosts_per_rack: int, *, slowdown: int = 1) -> Plan:
        """Return the plan.

        `slowdown` of the machine scales the defaults when no rate and no delay was given.
        Raises UsageError for invalid options, PlanError for a fabric that cannot be.
        """
        from mrc_testbed.topologies.plan import LinkSpeed, Mode, Plan, link_speeds

        mode = Mode.from_name(self.mode)
        slowdown = slowdown if self.are_usual else 1
        default = f"{link_speeds.SCALED_RATE_BPS / slowdown:g}"
        rates = [_rate(tier or self.rate or default) for tier in (self.host_rate, self.fabric_rate)]
        limited = any(rate is not None for rate in rates)
        pmtu = self.pmtu or (link_speeds.SCALED_PMTU if limited else UNLIMITED_PMTU)
        delays = [_delay(tier or self.delay) for tier in (self.host_delay, self.fabric_delay)]
        hops = [0, 1, 1, 0] if racks > 1 else [0, 0]
        spare_s = 0.0
        # Links without a given delay share what is left of the default base RTT.
        if limited and any(delays[tier] is None for tier in hops):
            bare = [LinkSpeed(rates[tier], delays[tier] or 0.0) for tier in hops]
            default_count = sum(delays[tier] is None for tier in hops)
            base_rtt_s = link_speeds.SCALED_RTT_S * slowdown
            spare_s = link_speeds.spare_delay_s(bare, base_rtt_s, pmtu, mode, default_count)
        tiers = [
            LinkSpeed(rate, spare_s if delay is None else delay) for rate, delay in zip(rates, delays, strict=True)
        ]
        return Plan(
            planes,
            racks,
            spines,
            hosts_per_rack,
            mode=mode,
            host_link=tiers[0],
            fabric_link=tiers[1],
            pmtu_bytes=pmtu,
        )


def _rate(text: str) -> float | None:
    if text.strip().lower() == NO_LIMIT:
        return None
    try:
        return units.rate(text)
    except UnitError as error:
        raise UsageError(f"{error}, or `{NO_LIMIT}` for no limit") from None


def _delay(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return units.seconds(text)
    except UnitError as error:
        raise UsageError(str(error)) from None
