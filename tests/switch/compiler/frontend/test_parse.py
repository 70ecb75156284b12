"""The parser: damaged grammar tables, deep nesting, garbage."""

from __future__ import annotations

from functools import cache

import pytest

from mrc_testbed.switch.compiler import P4Error, compile_program
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
