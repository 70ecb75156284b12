"""Allocations of Python that fail one by one while a call of an extension module runs.

SQLite's tests do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


def results_without_memory(call: Callable[[], Any], count: int = 60) -> Iterator[Any]:
    """Yield the result of `call` while its n-th allocation fails, for n = 1 to `count`.

    MemoryError stands for a refusal. Skips the test where Python has no `_testcapi`.
    """
    hooks = pytest.importorskip("_testcapi", reason="this Python has no _testcapi, which makes allocations fail")
    for number in range(count):
        hooks.set_nomemory(number, number + 1)
        try:
            result = call()
        except MemoryError:
            result = MemoryError
        finally:
            hooks.remove_mem_hooks()
        yield result
