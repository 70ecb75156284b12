"""Defaults that a plan gives to a host's configuration."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.agent.engine_defaults import (
    HOST_OVERHEAD_S,
    baseline_config,
    dcqcn_rates,
    host_config,
    pipe_rate_bps,
)
from mrc_testbed.hosts.engine.config import Config, ConfigError
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.topologies.plan import LinkSpeed, Plan


def test_config__without_rates_only_the_path_mtu_follows():
    assert host_config(Plan()) == Config.of(pmtu_bytes=4096)
    assert host_config(Plan(pmtu_bytes=1024)) == Config.of(pmtu_bytes=1024)


def test_config__switches_that_spray_keep_no_order():
    assert not host_config(Plan(mode="switch-spray")).loss.ev_fifo
    assert host_config(Plan(mode="ecmp")).loss.ev_fifo


def test_config__with_rates_nscc_for_the_plans_pipe():
    config = host_config(Plan.scaled())
    assert (config.congestion.cc_algorithm, config.qp.pmtu_bytes) == ("uet-1.0-nscc", 1024)
    assert config.congestion.base_rtt_s == pytest.approx(0.010 + HOST_OVERHEAD_S)
    assert config.congestion.link_rate_bps == pytest.approx(40e6 * 1112 / 1166)  # nominal bytes of the frames' bits
    assert config.loss.base_timeout_s > 5 * config.congestion.base_rtt_s


def test_config__timers_follow_slow_fabrics():
    config = host_config(Plan.scaled(rtt_s=0.2))
    assert config.loss.base_timeout_s > 1.0 and config.probes.timeout_s > 1.0


def test_config__what_is_given_wins_and_is_checked():
    assert host_config(Plan.scaled(), {"cc_algorithm": "fixed"}).congestion.cc_algorithm == "fixed"
    with pytest.raises(ConfigError, match="no key"):
        host_config(Plan(), {"speed": 1})


def test_pipe__the_narrowest_tier_counts():
    slow, fast = LinkSpeed(10e6), LinkSpeed(1e9)
    ratio = 4184 / 4238
    assert pipe_rate_bps(Plan(4, 2, 2, 2, host_link=fast, fabric_link=slow)) == pytest.approx(80e6 * ratio)
    assert pipe_rate_bps(Plan(4, 1, 2, 2, host_link=fast, fabric_link=slow)) == pytest.approx(4e9 * ratio)
    with pytest.raises(ValueError, match="no rate"):
        pipe_rate_bps(Plan())


def test_baseline__dcqcn_where_links_have_rates():
    assert baseline_config(Plan()).control == "window"
    config = baseline_config(Plan.scaled())
    assert (config.control, config.line_rate_bps, config.min_rate_bps) == ("dcqcn", 10e6, 25e3)


def test_baseline__its_timers_go_by_the_round_trip():
    plan, defaults = Plan.scaled(rtt_s=0.050), RcConfig()
    config = baseline_config(plan)
    for name in ("alpha_period_s", "increase_period_s", "cnp_interval_s"):
        assert getattr(config, name) == pytest.approx(plan.base_rtt_s() / 0.010 * getattr(defaults, name)), name
    assert config.timeout == defaults.timeout  # a NIC's is set by hand


def test_dcqcn_rates__go_by_the_line():
    defaults = RcConfig()
    assert dcqcn_rates(40e6) == {
        "line_rate_bps": 40e6,
        "min_rate_bps": defaults.min_rate_bps,
        "increase_bps": defaults.increase_bps,
    }
    # E17's incast: 56 QPs at their lowest rate leave most of a slow line free, as of a fast one.
    for rate in (1e6, 6e6, 400e9):
        assert 56 * dcqcn_rates(rate)["min_rate_bps"] == pytest.approx(0.14 * rate)
