"""Exceptions of another process: how they travel, and how they are raised here."""

from __future__ import annotations

import pickle


class ChildError(Exception):
    """Traceback of an exception in another process, used as its cause."""


def portable(error: Exception) -> Exception:
    """Return an exception that can be pickled: itself, or a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def with_trace(error: Exception, trace: str) -> Exception:
    """Return an exception of another process, with its traceback there as the cause."""
    error.__cause__ = ChildError(trace)
    return error
