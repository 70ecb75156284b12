"""A mistake of the compiler itself is told as an error, not as a traceback."""

import pytest

from mrc_testbed.switch.compiler import P4Error
from mrc_testbed.switch.compiler.compiler import check_program
from mrc_testbed.switch.compiler.frontend import parse

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
"""


def test_bug__names_the_program_and_asks_for_a_report(monkeypatch):
    def raise_bug(_text):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(parse, "parse_program", raise_bug)
    with pytest.raises(P4Error, match=r"internal error in the compiler \(KeyError: .*report it") as caught:
        check_program(PROGRAM)
    assert isinstance(caught.value.__cause__, KeyError)
