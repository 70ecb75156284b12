"""CC profiles: fields, life cycle, what they come to on a pipe."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.cc.ccprofile import (
    DEFAULT_PROFILE,
    FIXED_WINDOW,
    NSCC,
    QA_THRESHOLD_OFF,
    CcProfile,
    CcProfiles,
    ProfileState,
)
from mrc_testbed.hosts.engine.cc.nscc import INF, NsccParameters
from mrc_testbed.hosts.engine.errors import LocalError


def online(profiles: CcProfiles, profile: CcProfile | None = None) -> int:
    number = profiles.create(profile)
    profiles.move(number, ProfileState.OFFLINE)
    profiles.move(number, ProfileState.ONLINE)
    return number


def test_parameters__the_bold_row_of_the_sheet_as_a_profile():
    """nscc.md §1.4: 100 Mb/s, 5 ms, MTU 1500, no trimming; all fields given come to what is derived."""
    row = CcProfile(
        base_rtt=5_000_000,
        target_delay=5_000_000,
        qa_threshold=20_000_000,
        adjust_period_threshold=5_000_000,
        max_cwnd=93_750,
        adjust_bytes_threshold=12_000,
        fi=8533.333,
        eta=256.0,
        fi_scale=0.284444,
        gamma=0.8,
        max_md_jump=0.5,
        qa_gate=3,
    )
    row_parameters = row.parameters(1500, 12.5e6, 0.005, trimming=False)
    default_parameters = CcProfile().parameters(1500, 12.5e6, 0.005, trimming=False)
    for name in NsccParameters.__slots__:
        assert getattr(row_parameters, name) == pytest.approx(getattr(default_parameters, name), rel=1e-5), name


def test_parameters__quick_adapt_by_delay_switched_off_by_the_largest_threshold():
    parameters = CcProfile(qa_threshold=QA_THRESHOLD_OFF).parameters(1500, 12.5e6, 0.005, trimming=False)
    assert parameters.qa_threshold == INF
    assert not CcProfile(disable_qa=True).parameters(1500, 12.5e6, 0.005, trimming=True).quick_adapt


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"algorithm": "cubic"}, "uet-1.0-nscc, fixed"),
        ({"base_rtt": 0}, "base_rtt = 0"),
        ({"gamma": 1.5}, "0 to 1"),
        ({"max_cwnd": "big"}, "a whole number"),
        ({"qa_gate": True}, "qa_gate"),
        ({"disable_qa": 1}, "true or false"),
        ({"alpha": 1}, "no key alpha"),
        ({"fi": float("nan")}, "fi = nan"),
        ([], "table of keys"),
    ],
)
def test_from_json__says_what_is_wrong(data, words):
    with pytest.raises(LocalError, match=words):
        CcProfile.from_json(data)


def test_from_json__inverse_of_to_json():
    profile = CcProfile(algorithm=None, base_rtt=1000, eta=1.5, disable_qa=True)
    assert CcProfile.from_json(profile.to_json()) == profile


def test_life_cycle__only_the_moves_of_the_api():
    profiles = CcProfiles(CcProfile(FIXED_WINDOW))
    number = profiles.create(name="bulk")
    with pytest.raises(LocalError, match="is init, which moves to offline, not to online"):
        profiles.move(number, ProfileState.ONLINE)
    with pytest.raises(LocalError, match="bring it online"):
        profiles.take(number)
    profiles.move(number, ProfileState.OFFLINE)
    # Only an offline profile can be changed, and a refused change leaves every field as it was
    assert profiles.modify(number, gamma=0.5).gamma == 0.5
    with pytest.raises(LocalError, match="gamma = 7"):
        profiles.modify(number, gamma=7, eta=1.0)
    assert profiles.get(number).eta is None
    profiles.move(number, ProfileState.ONLINE)
    with pytest.raises(LocalError, match="take it offline"):
        profiles.modify(number, gamma=0.1)
    assert profiles.take(number).algorithm == NSCC
    with pytest.raises(LocalError, match="used by 1 QPs"):
        profiles.move(number, ProfileState.OFFLINE)
    with pytest.raises(LocalError, match="used by 1 QPs"):
        profiles.destroy(number)
    assert [(row["name"], row["state"], row["users"]) for row in profiles.rows()] == [
        ("default", "online", 0),
        ("bulk", "online", 1),
    ]
    profiles.give_back(number)
    profiles.move(number, ProfileState.OFFLINE)
    profiles.move(number, ProfileState.INIT)
    profiles.destroy(number)
    with pytest.raises(LocalError, match=r"no CC profile 1 \(has: 0\)"):
        profiles.get(number)


def test_default_profile__is_the_configuration_and_stays():
    profiles = CcProfiles(CcProfile(FIXED_WINDOW))
    assert profiles.take(DEFAULT_PROFILE).algorithm == FIXED_WINDOW
    for spoil in (profiles.destroy, lambda n: profiles.move(n, ProfileState.OFFLINE)):
        with pytest.raises(LocalError, match="configuration"):
            spoil(DEFAULT_PROFILE)


def test_create__has_a_limit():
    profiles = CcProfiles(CcProfile(FIXED_WINDOW), limit=2)
    online(profiles)
    with pytest.raises(LocalError, match="limit"):
        profiles.create()
