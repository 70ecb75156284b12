"""Test that p4src/README.md names everything a controller can write or read.

And that reasons have one number everywhere.
"""

from __future__ import annotations

import re

import pytest

from mrc_testbed.controller.p4runtime.counters import REASONS
from tests.p4src.plan_switch import P4SRC, compiled_program

PAGE = (P4SRC / "README.md").read_text()
QUOTED_WORDS = " ".join(re.findall(r"`([^`]+)`", PAGE))


@pytest.mark.parametrize("program", ["srv6", "spray"])
def test_page__names_tables_actions_counters_registers_and_digests(program):
    info = compiled_program(program).p4info
    in_tables = {ref.id for table in info.tables for ref in table.action_refs}
    actions = [
        action for action in info.actions if action.preamble.id in in_tables
    ]  # the others only the program calls
    groups = (info.tables, actions, info.counters, info.registers, info.digests, info.action_profiles)
    names = [element.preamble.alias for group in groups for element in group if element.preamble.alias != "NoAction"]
    assert [name for name in names if not re.search(rf"\b{name}\b", QUOTED_WORDS)] == []


@pytest.mark.parametrize("program", ["srv6", "spray"])
def test_page__names_keys_and_parameters(program):
    info = compiled_program(program).p4info
    keys = [field.name for table in info.tables for field in table.match_fields]
    params = [param.name for action in info.actions for param in action.params]
    assert [name for name in {*keys, *params} if not re.search(rf"\b{name}\b", QUOTED_WORDS)] == []


def test_reasons__have_one_number_in_program_page_and_controller():
    text = (P4SRC / "headers.p4").read_text()
    body = re.search(r"enum bit<4> drop_reason_t \{(.*?)\n\}", text, re.S)
    assert body
    numbers = {int(number): name for name, number in re.findall(r"(\w+)\s*= (\d+)", body[1]) if name != "NONE"}
    assert numbers.keys() == REASONS.keys()
    assert {int(n): name for n, name in re.findall(r"^\| (\d+) \| (\w+) \|", PAGE, re.M)} == numbers
    plain = {number: name.lower().replace("_", " ") for number, name in numbers.items()}
    assert plain == {number: name.lower() for number, name in REASONS.items()}
