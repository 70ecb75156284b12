"""The eBPF assembler: jumps and encodings."""

from __future__ import annotations

import pytest

from mrc_testbed.topologies.lab.ebpf import Assembler


def test_assembler__jumps_and_encodings():
    code = Assembler()
    code.jump_if("eq", 1, 5, "end")
    code.alu("add", 2, -4)
    code.constant(3, 0x1234567890ABCDEF)
    code.label("end")
    code.exit()
    assert code.code().hex(" ", 8) == (
        "1501030005000000 07020000fcffffff 18030000efcdab90 0000000078563412 9500000000000000"
    )
    with pytest.raises(ValueError, match="stands twice"):
        code.label("end")
    code.jump("nowhere")
    with pytest.raises(KeyError):
        code.code()
