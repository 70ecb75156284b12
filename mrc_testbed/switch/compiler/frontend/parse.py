"""Tokens -> syntax tree: runs the LALR grammar and turns its complaints into sentences."""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from mrc_testbed.switch.compiler.errors import P4Error
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.build_tree import TreeBuilder
from mrc_testbed.switch.compiler.frontend.lexer import KEYWORDS, PUNCTUATION, Lexeme, Source, tokenize
from mrc_testbed.switch.compiler.sema.scope import include_of
from mrc_testbed.switch.system.cache_folder import BuildError, safe_cache_dir, write_whole

GRAMMAR = Path(__file__).with_name("p4.lark")

_NAME_WORDS = {"ACTIONS", "APPLY", "ENTRIES", "KEY", "PRIORITY", "STATE", "TYPE"}
_TYPE_WORDS = {"BIT", "BOOL", "INT", "STRING", "VARBIT", "VOID", "_TUPLE", "ERROR", "LIST", "TYPE_ID"}
_LITERALS = {"INTEGER", "STRING_LITERAL", "TRUE", "FALSE"}
_OPERATORS = {
    "LOR",
    "LAND",
    "EQ",
    "NE",
    "LT",
    "GT",
    "LE",
    "GE",
    "BAR",
    "CARET",
    "AMP",
    "SHL",
    "SHR",
    "PLUS",
    "MINUS",
    "PLUS_SAT",
    "MINUS_SAT",
    "CONCAT",
    "STAR",
    "SLASH",
    "PERCENT",
    "_QUESTION",
}
_DECLARATIONS = {"_CONTROL", "_PARSER", "_EXTERN", "_PACKAGE", "HEADER", "STRUCT", "_TYPEDEF"}
_STATEMENT_STARTS = {
    "IDENTIFIER",
    "RBRACE",
    "ANNOTATION",
    "IF",
    "RETURN",
    "EXIT",
    "SWITCH",
    "CONST",
    "TRANSITION",
    "TABLE",
    "ACTION",
    "APPLY",
    "KEY",
    "ACTIONS",
    "ENTRIES",
    "STATE",
    "FOR",
    "BREAK",
    "CONTINUE",
    *(declaration.lstrip("_") for declaration in _DECLARATIONS),
} | _TYPE_WORDS
_WORDS = {
    "TYPE_ID": "the name of a type", "ANNOTATION": "an annotation", "DONTCARE": "_", "DOTS": "...",
    "INTEGER": "a number", "LANGLE": "`<`", "RANGLE": "`>`", "ASSIGN_OP": "`+=`",
}  # fmt: skip


class _Tokens(Lexer):
    """Hands lark the tokens of lexer.py; lark's own lexers know no types."""

    def __init__(self, _lexer_conf: Any) -> None:
        pass

    def lex(self, lexer_state: Any, _parser_state: Any = None) -> Iterator[Token]:
        source: Source = lexer_state
        for index, token in enumerate(source.tokens):
            kind = token.kind if token.kind in _KEPT_TERMINALS else "_" + token.kind
            word = tree.Word(kind, token.text, index, token.line, token.column)
            word.source = source
            yield word


@lru_cache(maxsize=1)
def _parser() -> Lark:
    """The parser: from the cache, for making its tables takes most of a small program's time."""
    grammar = GRAMMAR.read_text()
    cache_key = repr((grammar, Path(__file__).read_text(), lark.__version__, sys.version))
    try:
        path = safe_cache_dir() / f"p4-grammar-{hashlib.sha256(cache_key.encode()).hexdigest()[:20]}.tables"
    except BuildError:  # a cache that cannot be written hinders nobody who only checks a program
        return _make_parser(grammar)
    try:
        return Lark.load(io.BytesIO(path.read_bytes()))
    except Exception:  # not there, or cut short by a full disk: made again
        parser, saved_tables = _make_parser(grammar), io.BytesIO()
        parser.save(saved_tables)
        with contextlib.suppress(OSError):
            write_whole(path, saved_tables.getvalue())
        return parser


def prepare_grammar() -> None:
    """Store the tables of the grammar in the cache."""
    _parser()


def _make_parser(grammar: str) -> Lark:
    return Lark(grammar, parser="lalr", lexer=_Tokens, propagate_positions=False, start=["start", "args"])


_KEPT_TERMINALS = {
    word
    for line in GRAMMAR.read_text().splitlines()
    if line.startswith("%declare")
    for word in line.split()[1:]
    if not word.startswith("_")
}


def parse_program(text: str) -> list[tree.Node]:
    """Return the top-level declarations of a preprocessed program. Raises P4Error for a syntax error."""
    return _builder().program(_parse(tokenize(text), "start"))


def parse_arguments(source: Source) -> list[tree.Arg]:
    """Return the expressions in the parentheses of an annotation. Raises P4Error."""
    return _builder().arguments(_parse(source, "args"))


@lru_cache(maxsize=1)
def _builder() -> TreeBuilder:
    return TreeBuilder(parse_arguments)


def _parse(source: Source, start: str) -> Tree[Token]:
    try:
        parse_tree: Tree[Token] = _parser().parse(source, start=start)
    except UnexpectedToken as error:
        raise _syntax_error(error, source) from None
    return parse_tree


def _syntax_error(error: UnexpectedToken, source: Source) -> P4Error:
    expectation = _describe_expected(error)
    if error.token.type == "$END":
        last = source.tokens[-1] if source.tokens else Lexeme("", "", 1, 1)
        location = source.location(last.line, last.column + len(last.text))
        ends = "the annotation ends" if source.part else "the program ends"
        return P4Error(location, f"syntax error: {ends} here, expected {expectation}")
    index = error.token.start_pos
    token, previous = source.tokens[index], source.tokens[index - 1]
    if index and _ends_statement(error):
        location = source.location(previous.line, previous.column + len(previous.text))
        return P4Error(location, f"syntax error: expected `;` after `{previous.text}`, found {_describe_token(token)}")
    if index and previous.line < token.line and not expectation.startswith("a"):
        location = source.location(previous.line, previous.column + len(previous.text))
        return P4Error(
            location, f"syntax error: expected {expectation} after `{previous.text}`, found {_describe_token(token)}"
        )
    location = source.location(token.line, token.column)
    return P4Error(
        location, f"syntax error: found {_describe_token(token)}, expected {expectation}{_advice(token, error)}"
    )


def _accepted_terminals(error: UnexpectedToken) -> set[str]:
    """Names of the tokens that could stand where the error is."""
    parser: Any = error.interactive_parser
    return set(parser.accepts() if parser else error.expected)


def _ends_statement(error: UnexpectedToken) -> bool:
    """Could a `;` stand here, and does what was found begin something new: is it the `;` that is missing?"""
    accepts = _accepted_terminals(error)
    if accepts >= {"_IF", "_LBRACE"} or accepts >= _DECLARATIONS:  # an empty statement or declaration it would be
        return False
    return "_SEMICOLON" in accepts and error.token.type.lstrip("_") in _STATEMENT_STARTS


def _describe_token(token: Lexeme) -> str:
    if token.text in KEYWORDS:
        return f"the keyword `{token.text}`"
    if token.kind == "ANNOTATION":
        return f"the annotation @{token.text}"
    if token.kind == "TYPE_ID":
        return f"the type name `{token.text}`"
    return f"`{token.text}`"


def _describe_expected(error: UnexpectedToken) -> str:
    """Return the terminals that could stand here, in words; groups of terminals have one name each."""
    accepts = _accepted_terminals(error)
    words = []
    if accepts >= {"INTEGER", "TRUE", "FALSE"}:
        words.append("an expression")
        accepts -= (
            _LITERALS
            | _TYPE_WORDS
            | _NAME_WORDS
            | {"IDENTIFIER", "BANG", "TILDE", "MINUS", "PLUS", "THIS", "DOTS", "_LPAR", "_LBRACE", "_DOT"}
        )
    if accepts >= _DECLARATIONS:
        words.append("a declaration")
        accepts = {"$END"} & accepts
    if {"_IF", "_LBRACE"} <= accepts:
        words.append("a statement")
        accepts &= {"_RBRACE", "_ELSE", "_TRANSITION"}
    if accepts >= {"BIT", "BOOL", "TYPE_ID"}:
        words.append("a type")
        accepts -= _TYPE_WORDS | {"_DOT"}
    if "IDENTIFIER" in accepts:
        words.append("a name")
        accepts -= _NAME_WORDS | {"IDENTIFIER", "TYPE_ID", "LIST", "_LSQB"}
    if "_SEMICOLON" in accepts:
        accepts -= {"_LSQB"}  # the size of an array is the last thing that is missing
    if accepts >= {"PLUS", "STAR"}:
        words.append("an operator")
        accepts -= _OPERATORS
    accepts -= {"ANNOTATION", "_QUESTION"} if words or len(accepts) > 1 else set()
    symbols = {name: text for text, name in PUNCTUATION.items()}
    for name in sorted(accepts):
        bare = name.lstrip("_")
        if name == "$END":
            words.append("the end of the program")
        else:
            words.append(_WORDS.get(bare) or f"`{symbols.get(bare, bare.lower())}`")
    if len(words) > 8:
        words = [*words[:7], "..."]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _advice(token: Lexeme, error: UnexpectedToken) -> str:
    """A hint where the found token is itself the likely fault."""
    if token.kind == "IDENTIFIER" and "TYPE_ID" in error.expected and "IDENTIFIER" not in error.expected:
        home = include_of(token.text)
        return f" (it is in {home}: write #include <{home}>)" if home else f" (no type `{token.text}` is declared)"
    if token.text in KEYWORDS and "IDENTIFIER" in error.expected:
        return f" (`{token.text}` is a keyword and cannot be a name)"
    return ""
