"""Differences between two states of the dashboard."""

from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.dash.view import PARTS, difference

STATES = st.fixed_dictionaries(
    {
        part: st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 2), st.just({"up": True})))
        for part in PARTS
    }
)


def apply_changes(state, news):
    """Return the state with the changes applied, as the page does it."""
    for part, entries in news.items():
        for key, value in entries.items():
            if value is None:
                del state[part][key]
            else:
                state[part][key] = value
    return state


@given(STATES, STATES)
def test_difference__leads_from_one_state_to_the_other(first, second):
    news = difference(first, second)
    assert all(news.values()), "no part without a change"
    assert apply_changes({part: dict(entries) for part, entries in first.items()}, news) == second


def test_difference__of_the_same_is_nothing():
    state = {part: {"a": 1} for part in PARTS}
    assert difference(state, state) == {}
    assert difference({}, state) == state
