"""The parser: damaged grammar tables, deep nesting, garbage."""

from __future__ import annotations

from functools import cache

import pytest

from mrc_testbed.switch.compiler import P4Error, compile_program
from mrc_testbed.switch.compiler.compiler import check_program
from mrc_testbed.switch.compiler.frontend import parse
from mrc_testbed.switch.compiler.frontend.parse import _parser, parse_program
from tests.switch.compiler.test_errors import complaint, program


def test_cache__damaged_grammar_tables_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(parse, "_make_parser", cache(parse._make_parser))  # the same tables each time, made once
    _parser.cache_clear()
    parse_program('# 1 "x.p4"\nconst bit<8> X = 1;\n')
    (tables,) = tmp_path.glob("p4-grammar-*.tables")
    content = tables.read_bytes()
    for bad_content in (content[:1000], b"", b"cos\nnothing_there\n."):
        tables.write_bytes(bad_content)
        _parser.cache_clear()
        assert parse_program('# 1 "x.p4"\nconst bit<8> X = 1;\n')
        assert tables.stat().st_size > len(bad_content)


def test_hostile__deep_nesting_and_garbage_are_errors():
    for text in ("(" * 5000, "{" * 5000, program(apply="hdr.data.a = " + "~" * 3000 + "8w1;")):
        complaint(text + "\n")
    complaint(program(apply="hdr.data.a = 1" + " + 1" * 3000 + " + hdr.data.b;"))
    with pytest.raises(P4Error):
        compile_program('# 1 "x.p4"\n#include "/etc/hostname"\n')
    with pytest.raises(P4Error):
        compile_program("\0\n\xff\n")


def test_notes__lines_behind_a_hash_are_skipped_and_places_kept():
    notes = "# don't say \"x\n#note\n  # 3 packets\n"
    assert complaint(notes + program(apply="hdr.data.a = nothing;")) == (
        complaint(program(apply="hdr.data.a = nothing;")).replace("program.p4:16:", "program.p4:19:")
    )
    # in the middle of a line it is no note
    assert complaint(program(apply="hdr.data.a = 1; # no note")).startswith("program.p4:16:25: syntax error")


NAMES = "counter meter register hash packet_in digest random list key actions state entries type priority apply clone"


@pytest.mark.parametrize("name", NAMES.split())
def test_names__types_functions_and_keywords_as_fields_and_variables(name):
    top = f"header own_t {{ bit<8> {name}; bit<8> other; }}"
    compares = f"if (hdr.own.{name} < hdr.own.other && hdr.own.other > (hdr.own.{name})) {{ hdr.own.{name} = 1; }}"
    check_program(program(top=top, fields="own_t own;", apply=compares))
    if name != "list":  # which p4c takes as a member's name alone
        check_program(program(apply=f"bit<8> {name} = 1; if ({name} < hdr.data.a) {{ hdr.data.a = {name}; }}"))


def test_comparisons__of_calls_and_members_beside_type_arguments():
    top = "enum bit<8> e_t { a = 3 } bit<8> f(in bit<8> x) { return x; } bit<8> g<T>(in bit<8> x) { return x; }"
    local = "action pick(bool lo, bool hi) { hdr.data.a = lo && hi ? 8w1 : 8w2; }"
    apply = (
        "bit<8> lo = 1; bit<8> hi = 2; pick(lo < hi, hi > (lo)); pick(f(lo) < f(hi), hi > (e_t.a));"
        "pick(lo < e_t.a, hi > (lo)); pick(g<e_t>(lo) < hi, g<bit<(4 + 4)>>(hi) > (lo));"
    )
    check_program(program(top=top, local=local, apply=apply))


def test_annotations__unbalanced_brackets_within_parentheses():
    check_program(program(top="@note(a { ] < ;) const bit<8> K = 1;"))
