"""Lines of entries, as `save --tables` writes them, read back into entries."""

import pytest

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.entry_text import parse_entry
from mrc_testbed.controller.p4runtime.routes import entries_of
from mrc_testbed.topologies.plan import Mode, Plan


@pytest.mark.parametrize("switch", ["p0-t0-1", "p1-t1-0"])
def test_parse__every_entry_of_srv6_is_what_it_was(srv6, switch):
    plan = Plan.scaled(planes=2)
    for entry in entries_of("srv6", plan, plan.switch(switch), srv6):
        assert parse_entry(srv6, str(entry)).entity == entry.entity


@pytest.mark.parametrize("switch", ["p0-t0-1", "p1-t1-0"])
def test_parse__every_entry_of_spray_is_what_it_was(spray, switch):
    plan = Plan(planes=2, mode=Mode.ECMP)
    for entry in entries_of("spray", plan, plan.switch(switch), spray):
        assert parse_entry(spray, str(entry)).entity == entry.entity


def test_parse__members_groups_and_prefixes(spray):
    for line in (
        "route dst_addr=fd00:1::/32 spray(uplink_group=1)",
        "uplinks uplink_group=1 group(1)",
        "uplink_selector member 3: use_uplink(port=3)",
        "uplink_selector group 1: member 3 weight 1 watch 3, member 4 weight 1 watch 4",
        "uplink_selector group 2: empty",
    ):
        assert str(parse_entry(spray, f"  {line}")) == line


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("hello", "'hello': no table, match and action. Cure: a line of `save --tables`"),
        ("", "no table, match and action"),
        ("usid_nxt locator_usid=1 forward(port=3)", "no table 'usid_nxt' (has:"),
        ("usid_next locator=1 forward(port=3)", "no match field 'locator' (has: locator_usid)"),
        ("usid_next locator_usid=1 forwards(port=3)", "no action 'forwards' (has:"),
        ("usid_next locator_usid=1 forward(prt=3)", "parameter 'port' is missing"),
        ("usid_next locator_usid=1 forward()", "parameter 'port' is missing"),
        ("usid_next locator_usid=one forward(port=3)", "'one' is no number"),
        ("usid_next locator_usid forward(port=3)", "'locator_usid' is not FIELD=VALUE"),
        ("usid_next * forward(port=3)", "no value for match field locator_usid"),
        ("usid_next locator_usid=1 forward(port=3)", "would be written as 'usid_next locator_usid=0x000000000001"),
    ],
)
def test_parse__of_a_wrong_line_says_what_would_do(srv6, line, answer):
    with pytest.raises(InputError) as refusal:
        parse_entry(srv6, line)
    assert answer in str(refusal.value)


@pytest.mark.parametrize("line", ["uplink_selector member 3: use_uplink", "uplink_selector group 1: 3, 4"])
def test_parse__of_a_wrong_member(spray, line):
    with pytest.raises(InputError, match="Cure: a line of"):
        parse_entry(spray, line)
