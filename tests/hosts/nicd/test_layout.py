"""Layout of the rings and messages: Python's records beside the structures of nicd.h."""

from __future__ import annotations

import subprocess

from mrc_testbed.hosts.libmrc import SOURCES
from mrc_testbed.hosts.nicd import layout
from mrc_testbed.hosts.nicd.layout import NUMBERS, Record, numbers_of

STRUCTURES = {
    "nicd_record": (layout.RECORD, Record._fields),
    "nicd_sge": (layout.SGE, ("addr", "length", "lkey")),
    "nicd_completion": (
        layout.COMPLETION,
        ("wr_id", "retired", "status", "opcode", "vendor_error", "bytes", "imm", "qpn", "peer_qpn", "flags", "is_recv"),
    ),
    "nicd_event": (layout.EVENT, ("type", "number")),
    "nicd_ev_event": (layout.EV_EVENT, ("profile", "ev[0]", "ev[1]", "port", "state", "drop_count")),
    "nicd_ep_response": (layout.EP_RESPONSE, ("id", "port", "rtt", "adj_svc_time")),
}


def offsets(format_):
    """Return the offset of each field of a format without pads between them."""
    sizes = [{"I": 4, "Q": 8}[letter] for letter in format_.removeprefix("<").rstrip("x0123456789")]
    return [sum(sizes[:i]) for i in range(len(sizes))]


def test_structures__have_the_offsets_and_sizes_of_the_header(tmp_path):
    lines = []
    for name, (structure, fields) in STRUCTURES.items():
        starts = offsets(structure.format)
        assert len(starts) == len(fields)
        lines.append(f'_Static_assert(sizeof(struct {name}) == {structure.size}, "{name}");')
        lines += [
            f'_Static_assert(offsetof(struct {name}, {field}) == {start}, "{name}.{field}");'
            for field, start in zip(fields, starts, strict=True)
        ]
    lines += [f'_Static_assert(NICD_{name} == {value}, "NICD_{name}");' for name, value in NUMBERS.items()]
    lines.append(f'_Static_assert(NICD_SQ_BYTES == {layout.SQ_BYTES}, "NICD_SQ_BYTES");')
    source = tmp_path / "check.c"
    source.write_text("#include <stddef.h>\n#include <nicd.h>\n" + "\n".join(lines), encoding="utf-8")
    subprocess.run(["gcc", f"-I{SOURCES}", "-c", source, "-o", tmp_path / "check.o"], check=True)


def test_numbers__of_operations_and_values_are_each_used_once():
    for prefix in ("QP_", "DEVICE_", "STATUS_"):
        numbers = numbers_of(prefix)
        count = numbers.pop("VALUES")
        assert sorted(numbers.values()) == list(range(count)), prefix
    operations = numbers_of("OP_").values()
    assert len(set(operations)) == len(operations)
