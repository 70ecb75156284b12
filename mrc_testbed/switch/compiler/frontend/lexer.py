"""Preprocessed P4 text -> tokens for the LALR grammar (p4.lark).

P4 cannot be parsed by LALR(1) without help from its lexer, as C cannot. Three things are decided here, before the
parser runs, so that the grammar stays free of conflicts:

* an identifier that is declared as a type anywhere (or as a type parameter, within that declaration) becomes TYPE_ID;
* `<` that opens type arguments becomes LANGLE and its `>` RANGLE; the operators stay LT, GT and SHR (`>>`);
* words that are keywords only in some places (`key`, `actions`, `state`, ...) are keywords; the grammar takes them
  as names where the language does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mrc_testbed.switch.compiler.errors import Location, fail
from mrc_testbed.switch.compiler.frontend.preprocess import MARKER

_KEYWORDS = """
    abstract action actions apply bit bool break const continue control default else entries enum error exit extern
    false for header header_union if in inout int key list match_kind out package parser priority return select state
    string struct switch table this transition true tuple type typedef value_set varbit void
"""
KEYWORDS = frozenset(_KEYWORDS.split())

PUNCTUATION = {
    "{": "LBRACE", "}": "RBRACE", "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ";": "SEMICOLON",
    ":": "COLON", ",": "COMMA", ".": "DOT", "...": "DOTS", "?": "QUESTION", "@": "AT", "=": "ASSIGN",
    "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "%": "PERCENT", "|+|": "PLUS_SAT", "|-|": "MINUS_SAT",
    "++": "CONCAT", "&": "AMP", "|": "BAR", "^": "CARET", "~": "TILDE", "!": "BANG", "&&": "LAND", "||": "LOR",
    "&&&": "MASK", "..": "RANGE", "<": "LT", ">": "GT", "<=": "LE", ">=": "GE", "==": "EQ", "!=": "NE",
    "<<": "SHL", ">>": "SHR", "_": "DONTCARE", "#": "HASH", "+:": "PLUS_COLON",
}  # fmt: skip
ASSIGN_OPS = ("|+|=", "|-|=", "<<=", ">>=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=")
PUNCTUATION |= dict.fromkeys(ASSIGN_OPS, "ASSIGN_OP")

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\f\v]+|//[^\n]*|/\*.*?\*/)
  | (?P<newline>\n)
  | (?P<number>[0-9]+[ws](?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[dD][0-9_]+|[0-9][0-9_]*)
             |0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[dD][0-9_]+|[0-9][0-9_]*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<punct>\|[+-]\|=|<<=|>>=|[-+*/%&|^]=
            |\|\+\||\|-\||&&&|\.\.\.|\.\.|\+\+|\+:|&&|\|\||<=|>=|==|!=|<<|>>|[{}()\[\];:,.?@=+\-*/%&|^~!<>\#])
    """,
    re.X | re.S,
)
_MARKERS = re.compile(r'(?<=\n)# \d+ "[^"\n]*"[^\n]*')
_LONG_STRING = re.compile(rf'(?P<string>"(?:{_MARKERS.pattern}|[^"\\]|\\.)*")', re.S)
"""A string in an annotation may go over many lines; cpp may put its line markers in."""
_BASE_TYPES = frozenset(("bit", "int", "bool", "error", "string", "varbit", "void", "tuple", "list"))
_NAME_ENDS = frozenset(("COMMA", "RPAR", "ASSIGN", "SEMICOLON", "LSQB", "IN"))
"""Tokens that follow the name of a parameter or variable."""
_NAME_KEYWORDS = frozenset(("APPLY", "KEY", "ACTIONS", "STATE", "ENTRIES", "TYPE", "PRIORITY", "LIST"))
"""Keywords that are names where the language takes them so."""
_VALUE_ENDS = _NAME_KEYWORDS | {"IDENTIFIER", "TYPE_ID", "RPAR", "RSQB", "THIS", "ERROR"}
"""Tokens that end a value, or a type with members, before a dot."""
_TYPE_KEYWORDS = frozenset(("header", "struct", "header_union", "control", "parser", "package"))


@dataclass(slots=True)
class Lexeme:
    """One token. `kind` is the grammar's terminal; `line` indexes `Source.lines`; `column` counts from 1."""

    kind: str
    text: str
    line: int
    column: int
    body: list[Lexeme] | None = None
    """Tokens in the parentheses or brackets of an ANNOTATION; None without them. `text` is its name."""
    bracket: str = ""


class SourceLine(NamedTuple):
    """Origin of a line of the preprocessed text."""

    file: str
    number: int


@dataclass
class Source:
    """Tokens of a program, and its lines' origins (`lines[0]` is line 1 of the preprocessed text)."""

    tokens: list[Lexeme]
    lines: list[SourceLine]
    part: bool = False
    """Do the tokens come from within an annotation?"""

    def location(self, line: int, column: int) -> Location:
        origin = self.lines[min(line, len(self.lines)) - 1]
        return Location(origin.file, origin.number, column)


def tokenize(text: str) -> Source:
    """Tokenize a preprocessed text. Raises P4Error for text that is not P4."""
    lines = _origins(text)
    source = Source([], lines)
    source.tokens = list(_scan(text))
    source.tokens = list(_fold_annotations(source))
    for token in source.tokens:
        if token.kind == "UNKNOWN":
            fail(source.location(token.line, token.column), f"{token.text!r} is no part of P4")
    _mark_types(source.tokens)
    _unmark_members(source.tokens)
    _unmark_hidden(source.tokens)
    _mark_angles(source.tokens)
    _mark_field_lists(source.tokens)
    return source


def _origins(text: str) -> list[SourceLine]:
    lines, file, number = [], "<program>", 1
    for line in text.split("\n"):
        lines.append(SourceLine(file, number))
        match = MARKER.match(line)
        if match:
            file, number = match[2], int(match[1])
        else:
            number += 1
    return lines


def _scan(text: str) -> Iterator[Lexeme]:
    offset, line, start, is_line_start = 0, 1, 0, True
    last_kinds = ["", "", ""]
    """Kinds of the last tokens."""
    while offset < len(text):
        if is_line_start and text.startswith("#", offset):
            # A line marker, a pragma or a note (`# text`): cpp has obeyed all that it knows, and p4c skips the rest.
            end = text.find("\n", offset)
            offset = len(text) if end < 0 else end
            continue
        match = _TOKEN.match(text, offset)
        if not match and text[offset] == '"' and last_kinds[0] == "AT" and last_kinds[2] == "LPAR":
            match = _LONG_STRING.match(text, offset)
        if not match:  # an annotation may hold it
            yield Lexeme("UNKNOWN", text[offset], line, offset - start + 1)
            offset += 1
            continue
        kind, text_found = match.lastgroup, match.group()
        column = offset - start + 1
        offset = match.end()
        if kind == "newline":
            line, start, is_line_start = line + 1, offset, True
        elif kind == "blank":
            if "\n" in text_found:
                line, start = line + text_found.count("\n"), match.start() + text_found.rfind("\n") + 1
        else:
            is_line_start = False
            yield Lexeme(_kind(kind, text_found), _MARKERS.sub("", text_found), line, column)
            last_kinds = [*last_kinds[1:], _kind(kind, text_found)]
            if "\n" in text_found:
                line, start = line + text_found.count("\n"), match.start() + text_found.rfind("\n") + 1


def _fold_annotations(source: Source) -> Iterator[Lexeme]:
    """Make one token of `@name`, `@name(...)` and `@name[...]`; the body may hold any tokens, balanced."""
    tokens, i = source.tokens, 0
    while i < len(tokens):
        token = tokens[i]
        if token.kind != "AT":
            yield token
            i += 1
            continue
        location = source.location(token.line, token.column)
        if i + 1 >= len(tokens) or not tokens[i + 1].text.isidentifier():
            fail(location, "expected the name of an annotation after @")
        annotation = Lexeme("ANNOTATION", tokens[i + 1].text, token.line, token.column)
        i += 2
        if annotation.text == "pragma":  # the rest of the line is its body
            start = i
            while i < len(tokens) and tokens[i].line == token.line:
                i += 1
            annotation.body = tokens[start:i]
        elif i < len(tokens) and tokens[i].kind in ("LPAR", "LSQB"):
            # in (...) anything may stand, only its parentheses are balanced; [...] holds expressions
            end = _matching(tokens, i, _PARENTHESES if tokens[i].kind == "LPAR" else _BRACKETS)
            if end is None:
                fail(location, f"the annotation @{annotation.text} is never closed")
            annotation.body, annotation.bracket = tokens[i + 1 : end], tokens[i].text
            i = end + 1
        yield annotation


_PARENTHESES = {"LPAR": 1, "RPAR": -1}
_BRACKETS = _PARENTHESES | {"LSQB": 1, "RSQB": -1, "LBRACE": 1, "RBRACE": -1}


def _matching(tokens: list[Lexeme], i: int, brackets: Mapping[str, int] = _BRACKETS) -> int | None:
    """Index of the token that closes the bracket at i."""
    depth = 0
    for j in range(i, len(tokens)):
        depth += brackets.get(tokens[j].kind, 0)
        if depth == 0:
            return j
    return None


def _kind(group: str | None, text: str) -> str:
    if group == "number":
        return "INTEGER"
    if group == "string":
        return "STRING_LITERAL"
    if group == "word" and text != "_":
        return text.upper() if text in KEYWORDS else "IDENTIFIER"
    return PUNCTUATION[text]


def _mark_types(tokens: list[Lexeme]) -> None:
    """Turn the names of types into TYPE_ID: everywhere, or within the declaration for type parameters."""
    types: set[str] = set()
    type_parameter_ranges: list[tuple[int, int, set[str]]] = []
    for i, token in enumerate(tokens):
        if token.text in _TYPE_KEYWORDS and token.kind != "IDENTIFIER":
            name = i + 1
        elif token.kind == "ENUM":
            name = _last_name(tokens, i, "LBRACE")
        elif token.kind == "EXTERN":
            name = i + 1
            follows = _after_angles(tokens, i + 2)
            if _kind_at(tokens, follows) != "LBRACE" and _kind_at(tokens, i + 2) != "SEMICOLON":
                continue
            token.kind = "EXTERN_OBJECT"
        elif token.kind in ("TYPEDEF", "TYPE") and _is_declaration(tokens, i):
            name = _last_name(tokens, i)
        elif token.kind == "IDENTIFIER" and _kind_at(tokens, i + 1) == "LT" and _ends_type(tokens, i - 1):
            name = i  # a declared function or method that may have type parameters
        else:
            continue
        if _kind_at(tokens, name) != "IDENTIFIER":
            continue
        if name != i:
            types.add(tokens[name].text)
        parameters = _type_parameters(tokens, name + 1)
        if parameters:
            type_parameter_ranges.append((_start_of(tokens, i), _end_of(tokens, name + 1), parameters))
    for first, end, names in [(0, len(tokens), types), *type_parameter_ranges]:
        for token in tokens[first:end]:
            if token.kind == "IDENTIFIER" and token.text in names:
                token.kind = "TYPE_ID"


def _unmark_members(tokens: list[Lexeme]) -> None:
    """Make a member of each name behind a dot, whatever else has the name: `hdr.x.counter`, `m.list`."""
    for i, token in enumerate(tokens):
        # `.T` with nothing before the dot is the type T of the top level
        is_behind_dot = _kind_at(tokens, i - 1) == "DOT" and _kind_at(tokens, i - 2) in _VALUE_ENDS
        if is_behind_dot and token.kind in ("TYPE_ID", "LIST"):
            token.kind = "IDENTIFIER"


def _ends_type(tokens: list[Lexeme], i: int) -> bool:
    """Return whether the token at i can end the type of what is declared next."""
    kind = _kind_at(tokens, i)
    return kind in ("IDENTIFIER", "TYPE_ID", "GT", "SHR", "RSQB") or kind.lower() in _BASE_TYPES


def _unmark_hidden(tokens: list[Lexeme]) -> None:
    """A parameter, local variable or instance with the name of a type hides it: `inout headers headers`."""
    for i, token in enumerate(tokens):
        if token.kind != "TYPE_ID":
            continue
        next_kind = _kind_at(tokens, i + 1)
        is_instance = _kind_at(tokens, i - 1) == "RPAR" and next_kind in ("SEMICOLON", "ASSIGN")
        is_variable = _ends_type(tokens, i - 1) and next_kind in _NAME_ENDS
        if not is_instance and not is_variable:
            continue
        first, end = _scope_of(tokens, i)
        for other_token in tokens[first:end]:
            if other_token.text == token.text and other_token.kind == "TYPE_ID":
                other_token.kind = "IDENTIFIER"


def _scope_of(tokens: list[Lexeme], i: int) -> tuple[int, int]:
    """Return the range in which the parameter or variable at i is known; (i, i) for fields."""
    depth, index = 0, i
    while index >= 0 and depth <= 0:  # back to the bracket around it
        depth += {"LPAR": 1, "LBRACE": 1, "RPAR": -1, "RBRACE": -1}.get(tokens[index].kind, 0)
        index -= 1
    opening = index + 1
    if depth <= 0:
        return i, i
    if tokens[opening].kind == "LBRACE":
        index = opening - 1
        while index >= 0 and tokens[index].kind not in ("SEMICOLON", "LBRACE", "RBRACE"):
            if tokens[index].kind in ("STRUCT", "HEADER", "HEADER_UNION", "EXTERN_OBJECT"):
                return i, i
            index -= 1
        return i, _matching(tokens, opening) or i
    body = (_matching(tokens, opening) or i) + 1
    if _kind_at(tokens, body) == "LPAR":  # parameters of the constructor follow
        body = (_matching(tokens, body) or body) + 1
    if _kind_at(tokens, body) != "LBRACE":
        return i, i
    return body, _matching(tokens, body) or body


def _mark_field_lists(tokens: list[Lexeme]) -> None:
    """The expressions in @field_list: what names a type outside names it there."""
    types = {lexeme.text for lexeme in tokens if lexeme.kind == "TYPE_ID"}
    for token in tokens:
        if token.kind == "ANNOTATION" and token.text == "field_list":
            for lexeme in token.body or []:
                if lexeme.kind == "IDENTIFIER" and lexeme.text in types:
                    lexeme.kind = "TYPE_ID"
            _mark_angles(token.body or [])


def _kind_at(tokens: list[Lexeme], i: int) -> str:
    return tokens[i].kind if 0 <= i < len(tokens) else "END"


def _is_declaration(tokens: list[Lexeme], i: int) -> bool:
    """Return whether `typedef` or `type` at i begins a declaration; `type` is also an ordinary name."""
    previous_kind = _kind_at(tokens, i - 1)
    next_kind = _kind_at(tokens, i + 1)
    opens = previous_kind in ("END", "SEMICOLON", "RBRACE", "ANNOTATION")
    names = ("IDENTIFIER", "TYPE_ID", "STRUCT", "HEADER", "HEADER_UNION")
    return opens and (next_kind in names or next_kind.lower() in _BASE_TYPES)


def _last_name(tokens: list[Lexeme], i: int, end_kind: str = "SEMICOLON") -> int:
    """Index of the name a typedef or an enum declares: the last identifier before its `;` or `{`."""
    end = i
    while _kind_at(tokens, end) not in (end_kind, "END"):
        if _kind_at(tokens, end) == "LBRACE":  # typedef struct s { ... } t;
            end = _matching(tokens, end) or end
        end += 1
    return end - 1


def _after_angles(tokens: list[Lexeme], i: int) -> int:
    """Index after `<...>` when it begins at i, else i."""
    if _kind_at(tokens, i) != "LT":
        return i
    depth = 0
    while i < len(tokens):
        depth += {"LT": 1, "GT": -1, "SHR": -2}.get(tokens[i].kind, 0)
        i += 1
        if depth <= 0 or tokens[i - 1].kind in ("SEMICOLON", "LBRACE"):
            return i
    return i


def _type_parameters(tokens: list[Lexeme], i: int) -> set[str]:
    """Names in `<T, U>` at i, when it is such a list and a parameter list or a body follows; else nothing."""
    names: set[str] = set()
    if _kind_at(tokens, i) != "LT":
        return names
    i += 1
    while _kind_at(tokens, i) == "IDENTIFIER":
        names.add(tokens[i].text)
        i += 1
        if _kind_at(tokens, i) == "COMMA":
            i += 1
    return names if _kind_at(tokens, i) == "GT" and _kind_at(tokens, i + 1) in ("LPAR", "LBRACE") else set()


def _start_of(tokens: list[Lexeme], i: int) -> int:
    """Return the first token of the declaration around i: its return type may use the parameters."""
    while i > 0 and tokens[i - 1].kind not in ("SEMICOLON", "LBRACE", "RBRACE"):
        i -= 1
    return i


def _end_of(tokens: list[Lexeme], i: int) -> int:
    """Index after the declaration whose name ends before i: after its `;`, or after its body."""
    depth = 0
    while i < len(tokens):
        kind = tokens[i].kind
        if kind in ("LBRACE", "LPAR"):
            depth += 1
        elif kind in ("RBRACE", "RPAR"):
            depth -= 1
            if depth == 0 and kind == "RBRACE" and _kind_at(tokens, i + 1) != "LPAR":
                return i + 1
        elif kind == "SEMICOLON" and depth == 0:
            return i + 1
        i += 1
    return i


def _mark_angles(tokens: list[Lexeme]) -> None:
    """Tell angle brackets from operators; splits a `>>` that closes two lists."""
    out: list[Lexeme] = []
    open_at: list[int] = []  # depth of parentheses at each open LANGLE
    depth = 0
    for i, token in enumerate(tokens):
        kind = token.kind
        if kind in ("LPAR", "LBRACE", "LSQB"):
            depth += 1
        elif kind in ("RPAR", "RBRACE", "RSQB"):
            depth -= 1
            while open_at and open_at[-1] > depth:
                open_at.pop()
        elif kind == "SEMICOLON":
            open_at.clear()
        elif kind == "LT" and _opens_types(tokens, i):
            token.kind = "LANGLE"
            open_at.append(depth)
        elif kind == "GT" and open_at and open_at[-1] == depth:
            token.kind = "RANGLE"
            open_at.pop()
        elif kind == "SHR" and len(open_at) >= 2 and open_at[-1] == open_at[-2] == depth:
            out.append(Lexeme("RANGLE", ">", token.line, token.column))
            token = Lexeme("RANGLE", ">", token.line, token.column + 1)
            del open_at[-2:]
        out.append(token)
    tokens[:] = out


def _opens_types(tokens: list[Lexeme], i: int) -> bool:
    """Return whether the `<` at i opens type arguments, as p4c reads it; else it compares."""
    previous_kind = _kind_at(tokens, i - 1)
    if (
        previous_kind == "TYPE_ID"
        or previous_kind.lower() in _BASE_TYPES - {"error", "bool", "void"}
        or previous_kind == "VALUE_SET"
    ):
        return True
    # a call needs a type behind the `<`, and what is compared may be no more than a type's member (`x < E.a`)
    if previous_kind != "IDENTIFIER" or _kind_at(tokens, i + 1) == "INTEGER" or _kind_at(tokens, i + 2) == "DOT":
        return False
    j, depth = i + 1, 1
    while depth > 0:
        kind = _kind_at(tokens, j)
        if kind in ("LT", "GT", "SHR"):
            depth += {"LT": 1, "GT": -1, "SHR": -2}[kind]
            if kind == "LT" and _kind_at(tokens, j - 1) in ("BIT", "INT", "VARBIT"):
                j = _width_end(tokens, j + 1) - 1
        elif kind == "LSQB" and _kind_at(tokens, j - 1) in (
            "TYPE_ID",
            "RSQB",
            "GT",
        ):  # an array: its size is any number
            j = _matching(tokens, j) or j
        elif not (kind in ("TYPE_ID", "COMMA", "DONTCARE", "DOT") or kind.lower() in _BASE_TYPES):
            return False
        j += 1
    return depth == 0 and _kind_at(tokens, j) == "LPAR"


def _width_end(tokens: list[Lexeme], i: int) -> int:
    """Index of the `>` or `>>` behind the width that begins at i.

    A width is any expression without a `>` outside brackets.
    """
    while _kind_at(tokens, i) not in ("GT", "SHR", "SEMICOLON", "END"):
        i = (_matching(tokens, i) or i) + 1 if _kind_at(tokens, i) in ("LPAR", "LBRACE", "LSQB") else i + 1
    return i
