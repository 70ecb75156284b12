"""The compiler on programs with something wrong: each compiles, or is refused with a place and words.

No traceback.

A few dozen mutants each time. `MRC_FUZZ_PROGRAMS=20000` makes more and has gcc compile every tenth of those accepted.
"""

from __future__ import annotations

import os
import random
import re
import traceback
from functools import cache

import pytest

from mrc_testbed.switch.compiler import P4Error, compile_program
from mrc_testbed.switch.compiler.compiler import check_program
from mrc_testbed.switch.compiler.frontend.preprocess import preprocess
from tests.switch.compiled_programs import P4_FOLDER, PROGRAMS

LONG_RUN_MUTANTS = int(os.environ.get("MRC_FUZZ_PROGRAMS", "0"))
MUTANTS = LONG_RUN_MUTANTS or 40
SOURCES = sorted([*P4_FOLDER.glob("*.p4"), PROGRAMS / "srv6.p4", PROGRAMS / "spray.p4"])
TOKEN = re.compile(r"[A-Za-z_]\w*|\d\w*|\"[^\"]*\"|&&&|\+\+|[<>=!|&+-]=|&&|\|\||\.\.|<<|\S")
_WORDS = """
    { } ( ) < > [ ] ; : , . ? = ! ~ @ - + * / % & | ^ &&& ++ .. if else apply table key actions bit int varbit
    header struct state transition select default exact lpm ternary true error void in out inout return exit const 0
    1 255 8w1 4294967296 0xffffffffffffffffffffffffffffffffff -1 main _ this tuple enum extern control parser
    package typedef type action switch for valid hdr isValid setValid next last extract emit hit action_run
"""


@cache
def tokens(number: int) -> tuple[str, int, list[str]]:
    """Return (name, start of the program's own text, preprocessed text as tokens and gaps by turns)."""
    name, text = preprocess(SOURCES[number], (), ())
    text_start = text.rindex(f'{SOURCES[number]}" 2')
    text_start = text.index("\n", text_start) + 1
    pieces, token_end = [], text_start
    for token in TOKEN.finditer(text, text_start):
        pieces += [text[token_end : token.start()], token.group()]
        token_end = token.end()
    return name, text_start, [text[:text_start], *pieces, text[token_end:]]


def mutant(seed: int) -> str:
    """Return a program with one to three tokens taken out, doubled, exchanged or replaced."""
    choose = random.Random(seed)
    pieces = list(tokens(choose.randrange(len(SOURCES)))[2])
    token_indices = [index for index in range(2, len(pieces), 2) if "\n#" not in pieces[index - 1]]
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        index, other_index = choose.choice(token_indices), choose.choice(token_indices)
        kind = choose.randrange(6)
        if kind == 0:
            pieces[index] = ""
        elif kind == 1:
            pieces[index] += " " + pieces[index]
        elif kind == 2:
            pieces[index], pieces[other_index] = pieces[other_index], pieces[index]
        elif kind == 3:
            pieces[index] = pieces[other_index]
        elif kind == 4:
            pieces[index] = choose.choice(_WORDS.split())
        else:
            end_index = min(index + 2 * choose.randrange(1, 12), len(pieces) - 1)
            pieces[index:end_index] = [""] * (end_index - index)
    return "".join(pieces)


def judge(seed: int) -> str:
    """Return the fault of the compiler's answer; "" for a good complaint, "accepted" without one."""
    text = mutant(seed)
    try:
        check_program(text)
    except P4Error as error:
        if error.location is None and "nested too deeply" not in str(error):
            return f"no place: {error}"
        if error.location is not None and (error.location.line < 1 or not error.location.file.endswith(".p4")):
            return f"a strange place: {error}"
        return "" if re.search(r"\w", str(error).rpartition(": ")[2]) else f"no words: {error}"
    except Exception:
        return traceback.format_exc()[-1500:]
    if LONG_RUN_MUTANTS and seed % 10 == 0:
        try:
            compile_program(text)
        except P4Error as error:
            return f"gcc refuses it: {str(error)[:1500]}"
    return "accepted"


@pytest.mark.timeout(0 if LONG_RUN_MUTANTS else 300)
def test_mutants__compile_or_are_refused_with_a_place():
    failures, accepted_count = {}, 0
    for seed in range(MUTANTS):
        verdict = judge(seed)
        accepted_count += verdict == "accepted"
        if verdict not in ("", "accepted"):
            failures[seed] = verdict
            if LONG_RUN_MUTANTS:
                print(f"seed {seed}: {verdict}", flush=True)
    assert not failures, "\n\n".join(f"seed {seed}: {verdict}" for seed, verdict in list(failures.items())[:5])
    assert accepted_count < MUTANTS / 2, (
        f"{accepted_count} of {MUTANTS} mutants have nothing wrong: the mutations are too mild"
    )
