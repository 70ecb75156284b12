"""`kill -9` of each kind of part: told at the prompt, and cured there."""

from __future__ import annotations

import re
import time

import pytest

from mrc_testbed.topologies.lab.part_watch import RELAPSE_S
from tests.resilience.kill_parts import PARTS, Front, Row

pytestmark = pytest.mark.alone  # how soon a part is told and back counts here


@pytest.fixture(autouse=True)
def tables_unchanged():
    """Replace the folder's fixture, so that the shared fabric stays down; each test has its own."""


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRC_RUN_DIR", str(tmp_path_factory.mktemp("r")))
        front = Front()
        yield front
        assert front.end()


@pytest.mark.parametrize("part", PARTS)
def test_prompt__tells_a_death_answers_meanwhile_and_has_the_part_back(front, part):
    front.begin_load()
    time.sleep(RELAPSE_S)
    row = Row(part)
    front.kill(part, "queues", row)
    assert row.is_good, (row, row.faults)


def test_prompt__cuts_rates_and_switched_off_switches_survive_the_switches_restart(front):
    send_line = front.terminal.enter
    for line in ("link p0-t0-0 p0-t1-0 down", "rate p1-t0-0 p1-t1-0 5M", "power p1-t1-1 off"):
        send_line(line)
    time.sleep(RELAPSE_S)
    row = Row("switchd")
    front.kill("switchd", "links", row)
    assert (row.reports, row.restarts, row.hung) == (1, 1, 0), row.faults
    links = send_line("links")
    assert re.search(r"p0-t0-0 p0-t1-0 +DOWN", links) and re.search(r"p1-t0-0 p1-t1-0 +up +5 Mb/s", links), links
    assert len(re.findall("DOWN", links)) == 3, links
    assert "on" in send_line("heal") + send_line("power p1-t1-1 on")
