"""Exceptions of another process: each can travel, and shows where it was raised."""

import pickle

import pytest

from mrc_testbed.ipc.child_errors import ChildError, portable, with_trace


class PairError(Exception):
    """An exception that cannot be unpickled: its constructor takes two arguments."""

    def __init__(self, name, cause):
        super().__init__(f"{name}: {cause}")


def test_portable__is_the_exception_or_its_text():
    error = KeyError("a mistake")
    assert portable(error) is error
    text = pickle.loads(pickle.dumps(portable(PairError("link", "gone"))))
    assert type(text) is RuntimeError and str(text) == "PairError: link: gone"


def test_trace__is_the_cause():
    with pytest.raises(KeyError) as error:
        raise with_trace(KeyError("a mistake"), "Traceback: elsewhere")
    assert type(error.value.__cause__) is ChildError and str(error.value.__cause__) == "Traceback: elsewhere"
