"""Typed requests: what is taken, and in which words the rest is refused."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from mrc_testbed.ipc.requests import Number, Request, RequestError, RequestPart, check_range, parse


class Part(RequestPart):
    size: Annotated[int, Meta(ge=1, le=9)]
    rate: float | None = None


class SampleRequest(Request, tag="ask"):
    n: Number = 0
    f: Annotated[float, Meta(ge=0, le=5)] | None = None
    s: str = "x"
    b: bool = False
    numbers: Annotated[list[Number], Meta(min_length=1, description="1 or more numbers")] | None = None
    part: Part | None = None
    mapping: dict[str, Any] | None = None


class Need(Request, tag="need"):
    x: int


def parse_fields(**fields):
    return parse(SampleRequest, {"op": "ask", "id": [1], **fields})


def test_parse__defaults_nulls_and_whole_numbers_as_floats():
    request = parse_fields(n=None, f=3, part={"size": 5, "rate": None})
    assert (request.n, request.f, request.s, request.part.size, request.part.rate) == (0, 3.0, "x", 5, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": "5"}, "n = '5': must be of type int"),
        ({"n": True}, "n = True: must be of type int"),
        ({"n": 1.5}, "n = 1.5: must be of type int"),
        ({"n": -1}, "n = -1: must be 0 to 1.84467e+19"),
        ({"n": 1 << 64}, "n = 18446744073709551616: must be 0 to 1.84467e+19"),
        ({"f": float("nan")}, "f = nan: must be 0 to 5"),
        ({"f": 6}, "f = 6: must be 0 to 5"),
        ({"s": ""}, "s = '': must be a printable text that is not empty"),
        ({"s": "a\0b"}, "s = 'a\\x00b': must be a printable text that is not empty"),
        ({"s": "\ud800"}, "s = '\\ud800': must be a printable text that is not empty"),
        ({"s": ["x"]}, "s = ['x']: must be of type str"),
        ({"b": 1}, "b = 1: must be of type bool"),
        ({"numbers": 5}, "numbers = 5: must be of type list"),
        ({"numbers": []}, "numbers = []: 1 or more numbers"),
        ({"numbers": [1, "2"]}, "numbers = [1, '2']: 1 or more numbers"),
        ({"numbers": ["\ud800"]}, "numbers = ['\\ud800']: 1 or more numbers"),
        ({"mapping": [1]}, "mapping = [1]: must be of type dict"),
        ({"part": 5}, "part = 5: must be of type dict"),
        ({"part": {}}, "ask needs 'size' (int)"),
        ({"part": {"size": 10}}, "size = 10: must be 1 to 9"),
        ({"part": {"size": 1, "x": 1}}, "ask has no field 'x' (has: size, rate)"),
        ({"y": 1}, "ask has no field 'y' (has: n, f, s, b, numbers, part, mapping)"),
    ],
)
def test_parse__refuses_what_does_not_fit(fields, message):
    with pytest.raises(RequestError) as caught:
        parse_fields(**fields)
    assert str(caught.value) == message


def test_parse__names_what_is_missing():
    with pytest.raises(RequestError, match=r"^need needs 'x' \(int\)$"):
        parse(Need, {"op": "need", "x": None})


def test_check_range__of_bounds_known_late():
    check_range("plane", 1, 0, 1)
    with pytest.raises(RequestError, match="plane = 2: must be 0 to 1"):
        check_range("plane", 2, 0, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("\ud800"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["n", "f", "s", "b", "numbers", "part", "mapping", "z"]), JSON))
def test_parse__whatever_comes_is_taken_or_refused(fields):
    with contextlib.suppress(RequestError):
        parse(SampleRequest, {"op": "ask", **fields})
