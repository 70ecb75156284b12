"""Rows of the result: a transport at a size and a level of rates, over drawn months, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from mrc_testbed.experiments.failure_cost.model import LEVELS, FailureStudy, Level
from mrc_testbed.experiments.failure_cost.month import Hazard, Month, Terms, draw_month
from mrc_testbed.experiments.failure_cost.samples import Cost
from mrc_testbed.experiments.metrics.intervals import t_interval

CONFIDENCE = 0.95
DAY_S = 86_400.0
RATE_DAYS = 30.0
"""Days that the rates of a file are about."""
Costs = Mapping[tuple[str, str], Sequence[Cost]]
Paces = Mapping[str, Mapping[str, Sequence[float]]]
"""Size -> failure -> pace of each seed."""


def result_rows(study: FailureStudy, costs: Costs, paces: Paces) -> list[dict[str, Any]]:
    """Return a row for each size, transport and level, as JSON data."""
    return [
        _row(study, size, transport, level, costs, paces[size])
        for size in study.sizes
        for transport in study.transports
        for level in LEVELS
    ]


def _row(
    study: FailureStudy, size: str, transport: str, level: Level, costs: Costs, paces: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    parts = study.counts(transport, size)
    hazards = hazards_of(study, transport, level, parts, costs, paces)
    terms = Terms(
        study.days * DAY_S,
        study.times.restart_s.value_at(level),
        study.times.checkpoint_s.value_at(level),
        study.exposed_share.value_at(level),
    )
    seeds = range(1, (study.sizes[size].months or study.months) + 1)
    # Whether a host with a broken port is kept or left out is the operator's choice: the cheaper one is taken.
    may_swap = any(hazard.evaded_by_swap and hazard.pace > 1.0 for hazard in hazards)
    choices = [
        [draw_month(hazards, replace(terms, swaps=swaps), seed) for seed in seeds]
        for swaps in ((False, True) if may_swap else (False,))
    ]
    months = min(choices, key=lambda choice: fmean(month.lost_s for month in choice))
    return {
        "size": size,
        "transport": transport,
        "level": level,
        "months": len(months),
        "parts": parts,
        **_summary(months, terms.month_s, study.times.step_s.value_at(level)),
    }


def hazards_of(
    study: FailureStudy,
    transport: str,
    level: Level,
    parts: Mapping[str, int],
    costs: Costs,
    paces: Mapping[str, Sequence[float]],
) -> list[Hazard]:
    """Return the kinds of failures of a fabric. `paces`: of the fluid model at this size.

    The model has the pace of one transport; the pace of the others, and of failures that it lacks, is the samples'.
    """
    hazards = []
    for rate in study.rates:
        samples = costs[transport, rate.sample_at(level, study.times)]
        modelled = paces.get(rate.sample_at(level, study.times)) or paces.get(rate.failure.replace("flap", "link"))
        use_model = transport == study.paces.transport and modelled
        pace = fmean(modelled if use_model and modelled else [cost.pace for cost in samples])
        hazards.append(
            Hazard(
                rate.failure,
                rate.value_at(level) * parts[rate.parts] * study.days / RATE_DAYS,
                samples,
                max(1.0, pace),
                study.times.value_at(rate.lasts, level),
                evaded_by_swap=rate.parts == "nic_links" and rate.lasts == "link_repair_s",
            )
        )
    return hazards


def _summary(months: Sequence[Month], month_s: float, step_s: float) -> dict[str, Any]:
    lost = [month.lost_s for month in months]
    hours = {
        name: fmean(getattr(month, f"{name}_s") for month in months) / 3600 for name in ("down", "stalled", "slowed")
    }
    return {
        "goodput": interval([1.0 - lost_s / month_s for lost_s in lost]),
        "steps_lost": interval([lost_s / step_s for lost_s in lost]),
        "restarts": interval([float(month.restarts) for month in months]),
        "swaps": interval([float(month.swaps) for month in months]),
        "failures": interval([float(month.failures) for month in months]),
        "lost_hours": interval([lost_s / 3600 for lost_s in lost]),
        "hours": hours,
    }


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and interval (Student's t) as JSON data; the ends are None for a single value."""
    if len(values) < 2:
        return {"mean": values[0], "low": None, "high": None}
    mean_interval = t_interval(values, CONFIDENCE)
    return {"mean": mean_interval.estimate, "low": mean_interval.low, "high": mean_interval.high}


def sample_rows(costs: Costs) -> list[dict[str, Any]]:
    """Return what each failure cost in the samples, as JSON data."""
    rows = []
    for (transport, failure), samples in costs.items():
        survivors = [cost for cost in samples if not cost.dies]
        rows.append(
            {
                "transport": transport,
                "failure": failure,
                "seeds": len(samples),
                "dies": 1 - len(survivors) / len(samples),
                "stall_s": interval([cost.stall_s for cost in survivors]) if survivors else None,
                "pace": interval([cost.pace for cost in survivors]) if survivors else None,
            }
        )
    return rows


def pace_rows(paces: Paces) -> list[dict[str, Any]]:
    """Return the paces of the fluid model, as JSON data."""
    return [
        {"size": size, "failure": failure, "seeds": len(values), "pace": interval(values)}
        for size, by_failure in paces.items()
        for failure, values in by_failure.items()
    ]
