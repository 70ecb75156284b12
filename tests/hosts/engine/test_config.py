"""Configuration records: flat keys and their groups, and what is refused in which words."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.config import KEYS, Config, ConfigError, keys_of
from mrc_testbed.hosts.engine.config_limits import Only
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig


@pytest.mark.parametrize("settings", [Config, RcConfig])
def test_config__json_is_a_table_of_known_keys(settings):
    assert settings.from_json(settings().to_json()) == settings()
    with pytest.raises(ConfigError, match="is a table of keys; got \\[\\]"):
        settings.from_json([])
    with pytest.raises(ConfigError, match="no key 7, color"):
        settings.from_json({"color": 1, 7: 2})


@pytest.mark.parametrize(
    "keys, reason",
    [
        ({"trim_len": 1}, "to keep METH and TSETH"),
        ({"mpr_packets": 200}, "must be a multiple of 128"),
        ({"dscp_control": 64}, "dscp_control = 64: must be 0 to 63"),
        ({"dscp_control": 0}, "the six DSCPs must be 0 to 63 and differ; got \\[0, 0, 4, 8, 12, 16\\]"),
        ({"wimm_overflow": 0x19}, "wimm_overflow = 25: a NACK of that reason means something else"),
    ],
)
def test_config__values_that_cannot_work_say_why(keys, reason):
    with pytest.raises(ConfigError, match=reason):
        Config.of(**keys)


@pytest.mark.parametrize(
    "keys, reason",
    [
        ({"timeout": 0}, "timeout = 0: must be 1 to 31"),
        ({"timeout": True}, "timeout = True: must be"),
        ({"control": "magic"}, "control = 'magic': must be one of"),
        ({"min_rate_bps": 2e9, "line_rate_bps": 1e9}, "is more than line_rate_bps"),
    ],
)
def test_rc_config__values_that_cannot_work_say_why(keys, reason):
    with pytest.raises(ConfigError, match=reason):
        RcConfig(**keys)


@pytest.mark.parametrize("settings", [Config, RcConfig])
def test_config__a_fraction_of_an_integer_is_refused_in_both_forms(settings):
    """Python went on with timeout: 14.5, and the compiled engine ended in a TypeError's traceback."""
    for key, value in settings().to_json().items():
        if type(value) is int:
            with pytest.raises(ConfigError, match=f"{key} = "):
                settings.from_json({key: float(value)})


def test_config__flat_keys_reach_their_groups_and_the_rest_stays():
    config = Config.of(timeout=14, dscp_control=47).with_values(timeout=15, pmtu_bytes=1024)
    assert (config.loss.timeout, config.dscp.control, config.qp.pmtu_bytes) == (15, 47, 1024)
    assert config.to_json() == Config().to_json() | {"timeout": 15, "dscp_control": 47, "pmtu_bytes": 1024}
    assert config.wire is Config().wire


def test_config__an_unknown_key_is_answered_with_those_that_exist():
    for make in (Config.of, Config().with_values):
        with pytest.raises(ConfigError, match=r"no key cwnd, wire \(has: all_ports_down, .*cwnd_bytes, .*work_slots\)"):
            make(cwnd=1, wire=2)
    with pytest.raises(ConfigError, match="no key cls, self"):
        Config.from_json({"self": 1, "cls": 2})


def test_keys_of__a_key_in_two_groups_is_refused():
    with pytest.raises(ConfigError, match="ev_fifo: loss and again both have this key"):
        keys_of({"loss": Config().loss, "again": Config().loss})


def test_config__every_key_has_a_limit_that_its_default_keeps():
    for name, key in KEYS.items():
        assert key.limits, name
        key.check(key.default)


def test_range__is_that_of_numbers_and_none_of_words():
    ranges = {name: key.range for name, key in KEYS.items()}
    assert ranges["timeout"].low <= KEYS["timeout"].default <= ranges["timeout"].high
    assert ranges["flow_control"] is None


def test_config__other_dscps_that_differ_are_taken_and_what_alone_works_is_the_default():
    assert Config.of(dscp_control=47).dscp.control == 47
    only = {name: limit for name, key in KEYS.items() for limit in key.limits if isinstance(limit, Only)}
    assert len(only) == 3 and all(KEYS[name].default == limit.works for name, limit in only.items())
