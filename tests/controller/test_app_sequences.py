"""Random orders of faults over the whole controller, in virtual time.

And every order that once went wrong.
"""

import pytest

from mrc_testbed.controller.faults import forwarding
from tests.controller.sequences import STEPS, Sequence, Step, draw, run_sequence, shrink

SEQUENCE_COUNT = 16
"""Sequences of the normal run.

`python -m tests.controller.sequences --sequences 10000` is the long one.
"""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.thorough] if seed >= 8 else []) for seed in range(SEQUENCE_COUNT)]
)
def test_a_random_sequence_ends_as_it_began(seed):
    assert run_sequence(draw(seed)) == []


PAST_FAILURES = {
    "entries of a write whose answer was lost stayed on the switch": Sequence(
        0,
        (1, 2, 2, 1),
        "srv6",
        (),
        (Step(1.0, "switch loses answers", 0, 0.0), Step(0.1, "link down", 2), Step(5.0, "link up", 2)),
    ),
    "a T1 stayed out of its groups after a cut so short that it was called lossy": Sequence(
        129,
        (1, 2, 2, 1),
        "spray",
        (("react_after_s", 3.0),),
        (Step(0.062, "one-way cut", 672), Step(0.744, "strange port", 114, 0.6), Step(1.02, "policy", 274, 0.56)),
    ),
    "the same without a delay of the control plane": Sequence(
        243,
        (1, 2, 2, 2),
        "spray",
        (("denylist", "all"),),
        (Step(0.45, "one-way cut", 659), Step(1.153, "another controller", 310, 0.37)),
    ),
    "agents kept the denylist of a controller that was restarted when the fault was over": Sequence(
        0,
        (2, 2, 2, 1),
        "srv6",
        (("denylist", "all"),),
        (
            Step(0.5, "link down", 4),
            Step(2.0, "agent stops or goes on", 0),
            Step(0.1, "link up", 4),
            Step(2.0, "controller restarts", 0, 0.5),
        ),
    ),
    "a refused write was a problem for ever when nothing was left to write": Sequence(
        0,
        (1, 2, 2, 1),
        "srv6",
        (),
        (Step(0.5, "switch refuses writes", 0, 0.0), Step(0.5, "link down", 2), Step(0.2, "link up", 2)),
    ),
    "a switch that refused a write was given up for good by a controller that had begun without it": Sequence(
        20154,
        (1, 2, 2, 1),
        "spray",
        (("denylist", "lossy"), ("react_after_s", 0.0)),
        (
            Step(2.454, "switch off", 75),
            Step(2.35, "controller restarts", 54, 0.486),
            Step(1.984, "switch refuses writes", 303, 0.753),
            Step(1.345, "agent dies", 903),
            Step(0.072, "switch on", 547),
            Step(0.73, "gnmi off", 934),
        ),
    ),
    "counters were unread for ever while another plane had a bad path": Sequence(
        20121,
        (2, 2, 2, 1),
        "srv6",
        (),
        (
            Step(0.074, "strange ev", 110, 0.243),
            Step(0.012, "switch refuses counters", 559),
            Step(0.004, "link flaps", 427, 0.912),
        ),
    ),
    "a switch that restarted during a write was never connected again: its cancellation was lost": Sequence(
        200110,
        (1, 3, 2, 1),
        "spray",
        (("denylist", "off"), ("react_after_s", 0.4)),
        (Step(0.019, "switch off", 964), Step(0.001, "switch off", 611)),
    ),
    "a restarted controller gave up for good when a switch that it had written before refused one write": Sequence(
        209959,
        (2, 2, 2, 1),
        "srv6",
        (("denylist", "lossy"),),
        (
            Step(2.92, "switch off", 669, 0.401),
            Step(2.072, "gnmi stops or goes on", 741, 0.658),
            Step(0.438, "switch refuses writes", 719, 0.443),
            Step(1.251, "controller restarts", 332, 0.417),
            Step(16.461, "controller restarts", 338, 0.576),
        ),
    ),
}


@pytest.mark.parametrize("name", PAST_FAILURES)
def test_a_sequence_that_went_wrong(name):
    assert run_sequence(PAST_FAILURES[name]) == []


@pytest.mark.parametrize("program", ["srv6", "spray"])
def test_an_exception_in_a_reaction_is_seen(monkeypatch, program):
    """The campaign is no check that cannot fail.

    A reaction that raises fails it, and one step is left of many.
    """

    def raise_error(*_arguments, **_fields):
        raise ZeroDivisionError

    monkeypatch.setattr(forwarding.Forwarding, "read", raise_error)
    steps = (Step(1.0, "link down", 0), Step(1.0, "link up", 0), Step(0.5, "black hole", 2), Step(4.0, "policy", 0))
    sequence = Sequence(0, (1, 2, 2, 1), program, (), steps)
    failures = run_sequence(sequence)
    assert failures and all("counters of" in text and "ZeroDivisionError" in text for text in failures)
    assert [step.name for step in shrink(sequence).steps] == ["black hole", "policy"]  # the last one gives it time


def test_every_step_is_drawn():
    assert {step.name for seed in range(200) for step in draw(seed).steps} == set(STEPS)
