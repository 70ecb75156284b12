"""Allocations of Python fail one by one, as SQLite's tests do it, while a call of an extension module runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


def results_without_memory(call: Callable[[], Any], most: int = 60) -> Iterator[Any]:
    """Yield the result of `call` while its n-th allocation fails, for n = 1 to `most`.

    MemoryError stands for a refusal. Skips the test where Python has no `_testcapi`.
    """
    hooks = pytest.importorskip("_testcapi", reason="this Python has no _testcapi, which makes allocations fail")
    for number in range(most):
        hooks.set_nomemory(number, number + 1)
        try:
            result = call()
        except MemoryError:
            result = MemoryError
        finally:
            hooks.remove_mem_hooks()
        yield result
