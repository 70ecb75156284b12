"""`mrc p4 graph`: the way through parsers and controls as DOT, and as a picture where graphviz is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.p4 import app
from mrc_testbed.switch.compiler.compiler import front
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.tools.graph import GraphError, _Drawing, graph
from tests.switch.compiled_programs import P4_FOLDER, PROGRAMS

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<8> b; }
struct headers_t { h_t h; h_t i; }
struct metadata_t { }
parser Inner(packet_in b, out h_t i) { state start { b.extract(i); transition accept; } }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    Inner() inner;
    state start {
        b.extract(h.h);
        transition select(h.h.a, h.h.b) { (1, 2 &&& 3): more; (4 .. 5, _): more; (9, 9): reject; }
    }
    state more { inner.apply(b, h.i); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control Sub(inout headers_t h) {
    action twice() { h.h.a = h.h.a << 1; }
    apply { if (h.h.b == 0) { return; } twice(); h.h.b = 1; h.i.setInvalid(); }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    Sub() sub;
    action go(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    table t { key = { h.h.a : exact; h.h.b : ternary; } actions = { go; drop; } default_action = drop(); }
    table u { actions = { go; NoAction; } }
    apply {
        if (!t.apply().hit) { exit; } else { sub.apply(h); }
        switch (u.apply().action_run) { go: { h.h.a = 1; } NoAction: { h.h.a = 2; } }
        for (bit<8> n in 1 .. 3) { if (h.h.a == n && (h.h.b + 1 == 2 || h.i.isValid())) { break; } h.h.b = h.h.b + n; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def edges(dot: str) -> set[str]:
    """Return the edges as `name -label-> name`, with the first words of the boxes."""
    plain = re.compile(r"<[^>]*>")
    names = {}
    for number, label in re.findall(r"^\s*(n\d+) \[label=(.*?) shape=", dot, re.M):
        text = plain.sub("|", label[1:-1]).strip("|").split("|")[0]
        names[number] = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    arrows = re.findall(r'^\s*(n\d+) -> (n\d+)(?: \[label=" (.*?)"\])?;$', dot, re.M)
    return {f"{names[source]} -{label}-> {names[target]}" for source, target, label in arrows}


def test_parser__states_transitions_and_subparsers():
    edge_texts = edges(graph(front(PROGRAM), "parser"))
    assert edge_texts == {
        "start -(1, 2 &&& 3)\\n(4 .. 5, _)-> more",
        "start -(9, 9)\\nno match-> reject",
        "more --> accept",
        "start --> accept",
    }


def test_control__tables_conditions_and_every_way():
    edge_texts = edges(graph(front(PROGRAM), "ingress"))
    first = "h.h.a == n && (h.h.b + 1 == 2"  # the first of its lines
    assert edge_texts == {
        "start --> t",
        "t -miss, exit-> end",
        "t -hit-> h.h.b == 0",
        "h.h.b == 0 -false-> twice()",
        "h.h.b == 0 -true-> u",
        "twice() --> h.h.b = 1",
        "h.h.b = 1 --> u",
        "u -go-> h.h.a = 1",
        "u -NoAction-> h.h.a = 2",
        "u -default-> for (bit<8> n in 1 .. 3)",
        "h.h.a = 1 --> for (bit<8> n in 1 .. 3)",
        "h.h.a = 2 --> for (bit<8> n in 1 .. 3)",
        f"for (bit<8> n in 1 .. 3) -next-> {first}",
        f"{first} -false-> h.h.b = h.h.b + n",
        "h.h.b = h.h.b + n --> for (bit<8> n in 1 .. 3)",
        "for (bit<8> n in 1 .. 3) -done-> end",
        f"{first} -true-> end",
    }


def test_control__by_name_and_unknown_names_are_told():
    program = front(PROGRAM)
    assert graph(program, "Sub") == graph(program, "I.sub")
    assert "twice()" in graph(program, "Sub")
    with pytest.raises(GraphError, match=r"has no control J \(has: parser, verify, ingress, .*I.sub"):
        graph(program, "J")


def test_whole__empty_controls_are_left_out():
    titles = re.findall(r"label=\"([^\"]*)\"; labeljust", graph(front(PROGRAM)))
    assert titles == ["parser: P", "parser P.inner", "ingress: I", "sub: Sub", "deparser: D"]


EXAMPLES = [
    P4_FOLDER / f"{name}.p4" for name in ("subparsers", "functions", "generics", "stacks", "tables", "semantics")
]


@pytest.mark.parametrize("source", [*EXAMPLES, PROGRAMS / "srv6.p4", PROGRAMS / "spray.p4"], ids=lambda path: path.stem)
def test_every_program__has_no_loose_box(source):
    """Each box but the starts has a way in, each but the ends a way out."""
    dot = graph(front(source))
    boxes = set(re.findall(r"^\s*(n\d+) \[", dot, re.M))
    pairs = re.findall(r"(n\d+) -> (n\d+)", dot)
    starts = set(re.findall(r"(n\d+) \[label=(?:\"start\"|<<b>start</b>)", dot))
    ends = set(re.findall(r"(n\d+) \[label=\"(?:end|accept|reject)\"", dot))
    assert boxes - {head for _, head in pairs} - starts == set()
    assert boxes - {tail for tail, _ in pairs} - ends == set()


def test_command(tmp_path, monkeypatch):
    program = tmp_path / "x.p4"
    program.write_text(PROGRAM)
    out = tmp_path / "x.dot"
    result = CliRunner().invoke(app, ["graph", str(program), "--control", "ingress", "-o", str(out)])
    assert (result.exit_code, result.output) == (0, f"{out}\n") and out.read_text().startswith('digraph "x" {')
    assert CliRunner().invoke(app, ["graph", str(program), "--format", "dot", "--parser"]).output.startswith("digraph")
    for options, message in (
        (["--control", "J"], "has no control J"),
        (["--format", "png"], "there is svg and dot"),
        (["--parser", "--control", "I"], "give one"),
        (["-o", "/nowhere/x.dot"], "/nowhere/x.dot: No such"),
    ):
        result = CliRunner().invoke(app, ["graph", str(program), *options])
        assert result.exit_code == 1 and message in result.output
    monkeypatch.setenv("PATH", str(Path(shutil.which("cpp")).parent) if shutil.which("dot") is None else str(tmp_path))
    (tmp_path / "cpp").symlink_to(Path("/usr/bin/cpp"))
    result = CliRunner().invoke(app, ["graph", str(program)])
    assert result.exit_code == 1 and "apt install graphviz" in result.output and "--format dot" in result.output


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed (apt install graphviz)")
def test_command__a_picture(tmp_path):
    result = CliRunner().invoke(app, ["graph", str(PROGRAMS / "srv6.p4"), "-o", str(tmp_path / "srv6.svg")])
    assert result.exit_code == 0, result.output
    picture = ElementTree.parse(tmp_path / "srv6.svg").getroot()
    text = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"my_usid", "usid_next", "parse_srh", "ingress: SwitchIngress"} <= set(text)


def test_statements__every_node_is_drawn_or_told_as_text():
    blocks = {tree.Block, tree.CallStatement, tree.DirectApply}  # drawn by flow() itself
    text = {tree.Assign, tree.Empty, tree.Const, tree.Var, tree.Instance}
    loops = {tree.For, tree.ForIn, tree.Break, tree.Continue}
    assert set(_Drawing.DRAW_METHODS) | blocks | text == loops | set(tree.Statement.__args__)
