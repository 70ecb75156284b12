"""Calls that may be refused: tests with random input assert on the result or on the refusal."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def may_raise(*kinds: type[Exception]) -> Iterator[list[Exception]]:
    """Catch an error that ends the block; yield a list with it, empty if the block succeeded."""
    caught: list[Exception] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
