"""p4runtime-shell, in its own environment, against the embedded switch.

The session is tests/switch/server/p4runtime/shell_script.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from mrc_testbed.switch.compiler import compile_program
from tests.repository import ROOT
from tests.switch.server.running_server import running_daemon

INTERPRETERS = [folder / ".venv-p4runtime-shell" / "bin" / "python" for folder in (ROOT, Path(sys.prefix).parent)]
PYTHON = next((path for path in INTERPRETERS if path.exists()), None)
TEXT = """
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_in") header in_t { bit<9> port; bit<7> pad; }
@controller_header("packet_out") header out_t { bit<9> port; bit<7> pad; }
header h_t { bit<32> a; bit<8> b; bit<8> c; bit<8> d; }
struct headers_t { in_t i; out_t o; h_t h; }
struct metadata_t { }
struct seen_t { bit<32> a; }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { transition select(s.ingress_port) { 510: from_cpu; default: data; } }
    state from_cpu { b.extract(h.o); transition data; }
    state data { b.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets) hits;
    counter(4, CounterType.packets) cells;
    meter(4, MeterType.packets) rates;
    action forward(bit<9> port) { s.egress_spec = port; hits.count(); }
    @name("to") action forward_to(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    table route { key = { h.h.a : lpm; } actions = { forward; drop; } counters = hits; support_timeout = true; }
    table acl { key = { h.h.b : ternary; h.h.c : range; h.h.d : optional; } actions = { drop; NoAction; } }
    action_selector(HashAlgorithm.crc16, 16, 16) ap;
    table pick { key = { h.h.a : exact; h.h.b : selector; } actions = { forward_to; NoAction; } implementation = ap; }
    apply {
        bit<2> colour;
        cells.count(0); rates.execute_meter(1, colour);
        route.apply(); acl.apply(); pick.apply();
        if (h.o.isValid()) {
            digest<seen_t>(1, { h.h.a });
            s.egress_spec = h.o.port; h.o.setInvalid(); h.i.setValid();
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.i); b.emit(h.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


@pytest.mark.skipif(PYTHON is None, reason="no .venv-p4runtime-shell: scripts/setup makes it")
def test_shell__session(tmp_path):
    program = compile_program(TEXT)
    (tmp_path / "info").write_text(text_format.MessageToString(program.p4info))
    (tmp_path / "config").write_bytes(program.config)

    async def check():
        async with running_daemon() as daemon:
            script = Path(__file__).with_name("shell_script.py")
            arguments = [str(daemon.p4runtime_port), str(tmp_path / "info"), str(tmp_path / "config")]
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            child = await asyncio.create_subprocess_exec(
                str(PYTHON),
                str(script),
                *arguments,
                cwd=tmp_path,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await child.communicate()
            assert child.returncode == 0 and output.decode().endswith("done\n"), output.decode()

    asyncio.run(check())
