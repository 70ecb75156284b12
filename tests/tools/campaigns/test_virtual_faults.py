"""Random fault sets against the correlator in virtual time, and checks of their judgement."""

import json
from random import Random

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.faults.observations import replay_file
from mrc_testbed.topologies.plan import Plan
from tools.campaigns.virtual_faults import (
    RESULT_EXACT,
    RESULT_MISSED,
    RESULT_UNCLEAR,
    RESULT_WRONG,
    InjectedCause,
    World,
    judge,
    keep,
    random_set,
    run_sets,
    world_of,
)

PLAN = Plan(1, 3, 2, 2)
LINK = PLAN.link("p0-t0-0", "p0-t1-1")
NEIGHBOUR = PLAN.link("p0-t0-0", "p0-t1-0")


def world(*causes, make=FaultCorrelator, seed=1):
    out = World(PLAN, list(causes), seed, make)
    out.run()
    return out


def cut(link, start_s=3.0):
    return InjectedCause("link down", link, start_s, frozenset((link.lower.interface, link.upper.interface)))


def one_way(arc, link=LINK, start_s=3.0):
    return InjectedCause("one-way cut", link, start_s, frozenset({arc}))


# ---- the correlator -----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_random_sets__nothing_is_named_that_is_not_broken():
    tally = run_sets(7, range(50))
    assert not tally.sets[RESULT_WRONG], json.dumps(tally.details, indent=1)
    assert tally.sets[RESULT_EXACT] > 37
    assert tally.causes["with direction"] > tally.causes["one-way"] / 2


ONCE_WRONG = (
    8,
    163,
    196,
    212,
    262,
    271,
    323,
    329,
    470,
    551,
    578,
    608,
    619,
    946,
    1045,
    1190,
    1251,
    1253,
    1312,
    1360,
    1441,
    1445,
    2093,
    2205,
    2334,
    2725,
    2745,
    5422,
    5561,
    6240,
)
"""Sets of seed 1 in which something was named wrongly while the correlator grew."""
WRONG_OR_MISSED = {
    5: (
        118,  # a choice that was narrowed, and cannot be narrowed that far any more
        144,  # a NIC link that happens to lose only what goes to the T1
        284,  # a choice that waits to be told, and has other candidates with every reading
    ),
    21: (
        89,  # the direction of a dead NIC link from EVs that die of losses elsewhere
        390,  # two links that lose about as many packets, taken for a choice between them
        426,  # as 144
        716,  # as 390
    ),
    22: (302,),  # as 89
    23: (39, 70),  # as 390
    24: (143,),  # a path that loses some is called dead before it dies: what forwarded in between proved nothing
    27: (
        606,  # the direction of a lossy link from a path that died with its T0
        879,  # two lossy uplinks, taken for the NIC link on the paths of both
    ),
    100: (
        549,  # a loop that was sent for two links, and had its counts mixed up: it seemed to lose nothing
        591,  # two NIC links that lose: the loops of one over the T0 of the other spoke against that T0
        1002,  # eight probes in a row of a path behind a NIC link that loses 64 % there and back, taken for its death
        2802,  # as 549
        6476,  # as 549
        6382,  # a path behind a NIC link that loses 64 %, dead for having lost 19 of 20
        7955,  # losses of loops behind another losing link, taken for losses of both directions
    ),
}
"""Sets of other seeds in which something was once named wrongly or has got no name."""


@pytest.mark.thorough
def test_random_sets__those_that_were_once_named_wrongly():
    tally = run_sets(1, ONCE_WRONG)
    tally.merge(run_sets(22, [480]))  # as 89 of seed 21; the losing link, which one EV alone crosses, is still missed
    tally.merge(run_sets(100, [8307]))  # as 7955; a link that loses behind another losing one is still missed
    assert not tally.sets[RESULT_WRONG], json.dumps(tally.details, indent=1)


@pytest.mark.parametrize(("seed", "number"), [(seed, set_) for seed, sets in WRONG_OR_MISSED.items() for set_ in sets])
def test_random_sets__those_that_were_once_named_wrongly_or_missed(seed, number):
    tally = run_sets(seed, [number])
    assert not tally.sets[RESULT_WRONG] and not tally.sets[RESULT_MISSED], json.dumps(tally.details, indent=1)


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_one_way_cut__is_named_as_that_direction(end):
    near_end, far_end = (LINK.lower, LINK.upper) if end == "lower" else (LINK.upper, LINK.lower)
    story = world(one_way(near_end.interface))
    (fault,) = story.faults.active()
    assert fault.direction == f"{near_end.node} -> {far_end.node}"
    assert fault.text == f"T0-T1 link {near_end.node} -> {far_end.node} loses everything while its ports are up"
    assert (fault.kind, fault.location) == ("lossy link", LINK.name)


@pytest.mark.parametrize("switch", ["p0-t0-1", "p0-t1-0"])
def test_black_hole__is_the_switch(switch):
    (fault,) = world(InjectedCause("black hole", PLAN.switch(switch), 3.0)).faults.active()
    assert (fault.kind, fault.location, fault.direction) == ("blackhole", switch, None)


@pytest.mark.parametrize("is_inbound", [True, False])
def test_all_ways_into_or_out_of_a_t1__are_those_links_and_not_the_t1(is_inbound):
    """No probe tells this from a black hole: what arrives at the T1's ports, and what it forwards, does."""
    links = [link for link in PLAN.links if "p0-t1-1" in link.ends]
    story = world(*(one_way((k.lower if is_inbound else k.upper).interface, k) for k in links))
    assert judge(story).false_reports == ()
    directions = sorted(fault.direction for fault in story.faults.active())
    assert directions == sorted(
        f"{k.lower.node} -> p0-t1-1" if is_inbound else f"p0-t1-1 -> {k.lower.node}" for k in links
    )


def test_both_nics_of_a_rack__are_not_their_t0():
    """Hosts of other racks send loops over the T0, and those return."""
    nics = [link for link in PLAN.links if link.upper.node == "p0-t0-2" and link.lower.node.startswith("h")]
    assert judge(world(*(one_way(k.lower.interface, k) for k in nics))).false_reports == ()


# ---- the judgement ------------------------------------------------------------------------------------------


class NextDoor(FaultCorrelator):
    """Takes a port for the one beside it."""

    def port(self, interface, status, **details):
        node = next(
            node for node in self.plan.switches if interface in [p.interface for p in self.plan.ports(node.name)]
        )
        ports = [port.interface for port in self.plan.ports(node.name)]
        super().port(ports[ports.index(interface) - 1], status, **details)


class Mute(FaultCorrelator):
    """Explains nothing."""

    def on_timer(self, now):
        self._due.clear()

    def next_timer(self):
        return None


class Hasty(FaultCorrelator):
    """Asks no witness."""

    def _premature(self, *_):
        return []


class Backwards(FaultCorrelator):
    """Takes one direction of a link for the other."""

    def changes(self):
        for fault in self._fault_list.active_faults:
            if fault.direction and " -> " in fault.direction:
                fault.direction = " -> ".join(reversed(fault.direction.split(" -> ")))
        return super().changes()


@pytest.mark.thorough
@pytest.mark.parametrize("correlator", [NextDoor, Mute, Hasty, Backwards])
def test_judgement__a_broken_correlator_is_caught(correlator):
    if correlator is Mute:
        assert run_sets(7, range(8), correlator).sets == {RESULT_MISSED: 8}
        return
    seed, sets = (1, ONCE_WRONG) if correlator is Hasty else (7, range(24))
    assert any(run_sets(seed, [number], correlator).sets[RESULT_WRONG] for number in sets)


def test_judgement__the_place_has_to_be_right():
    story = world(cut(LINK))
    assert judge(story).result == RESULT_EXACT
    story.causes = [cut(NEIGHBOUR)]
    verdict = judge(story)
    assert verdict.result == RESULT_WRONG and LINK.name in verdict.false_reports[0]


def test_judgement__the_direction_has_to_be_right_where_it_is_told():
    story = world(one_way(LINK.lower.interface))
    assert judge(story).result == RESULT_EXACT
    story.causes = [one_way(LINK.upper.interface)]
    assert judge(story).result == RESULT_WRONG


def test_judgement__what_was_named_for_a_moment_counts():
    story = world(cut(LINK))
    story.first_reports["link", NEIGHBOUR.name, None] = 3.1
    assert judge(story).false_reports == (f"link {NEIGHBOUR.name}, named at 3.10",)


def test_judgement__the_kind_has_to_be_right_in_the_end():
    story = world(cut(LINK))
    (fault,) = story.faults.active()
    fault.kind = "lossy link"
    assert judge(story).result == RESULT_WRONG


def test_judgement__one_of_two_is_missed():
    story = world(cut(LINK))
    story.causes.append(cut(PLAN.link("p0-t0-2", "p0-t1-0")))
    verdict = judge(story)
    assert verdict.result == RESULT_MISSED and verdict.exact_count == 1 and len(verdict.missed_causes) == 1


def test_judgement__what_lies_behind_another_fault_is_not_asked_for():
    dead_switch = InjectedCause("switch dead", PLAN.switch("p0-t0-0"), 3.0)
    verdict = judge(world(dead_switch, one_way(LINK.lower.interface, start_s=4.0)))
    assert (verdict.result, verdict.seen_count, verdict.exact_count) == (RESULT_EXACT, 1, 1)


def test_judgement__cannot_tell_wants_the_truth_among_the_candidates():
    plan = Plan(1, 3, 2, 1)
    link = plan.link("h0", "p0-t0-0")
    lossy = InjectedCause("lossy link", link, 3.0, frozenset((link.lower.interface, link.upper.interface)), 0.2)
    story = World(plan, [lossy], 3)
    story.run()
    assert judge(story).result == RESULT_UNCLEAR
    story.causes = [InjectedCause("black hole", plan.switch("p0-t1-1"), 3.0)]
    assert judge(story).result == RESULT_WRONG


def test_random_set__one_to_four_causes_of_every_kind():
    sets = [random_set(PLAN, Random(seed)) for seed in range(300)]
    assert {len(set_) for set_ in sets} == {1, 2, 3, 4}
    causes = [cause for set_ in sets for cause in set_]
    assert {cause.kind for cause in causes} == {"link down", "switch dead", "black hole", "lossy link", "one-way cut"}
    assert {cause.calls for cause in causes} == {"link", "NIC port", "T0", "T1", "blackhole", "lossy link"}


# ---- the command --------------------------------------------------------------------------------------------


def test_keep__a_set_replayed_ends_as_it_did(tmp_path):
    story = world_of(7, 3)
    story.run()
    changes = []
    replay_file(keep(7, 3, tmp_path), lambda now, change, fault: changes.append((change, fault.text)))
    active = [fault.text for fault in story.faults.active()]
    assert active and all(any(text == fault_text for _, fault_text in changes) for text in active)


def test_command__prints_what_became_of_the_sets(tmp_path):
    cli_result = CliRunner().invoke(
        app, ["bench", "faults", "--virtual", "--sets", "4", "--json", "--out", str(tmp_path)]
    )
    assert cli_result.exit_code == 0, cli_result.output
    result = json.loads(cli_result.stdout)
    assert sum(result["sets"].values()) == result["drawn"] == 4
    assert result["passed"] and result["causes"]["exact"] > 0
