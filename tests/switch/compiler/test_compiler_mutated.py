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

LONG = int(os.environ.get("MRC_FUZZ_PROGRAMS", "0"))
MUTANTS = LONG or 40
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
    """(name, where the program's own text begins, the preprocessed text in tokens and what stands between them)."""
    name, text = preprocess(SOURCES[number], (), ())
    own = text.rindex(f'{SOURCES[number]}" 2')
    own = text.index("\n", own) + 1
    pieces, at = [], own
    for found in TOKEN.finditer(text, own):
        pieces += [text[at : found.start()], found.group()]
        at = found.end()
    return name, own, [text[:own], *pieces, text[at:]]


def mutant(seed: int) -> str:
    """A program with one to three tokens taken out, doubled, exchanged or replaced."""
    choose = random.Random(seed)
    pieces = list(tokens(choose.randrange(len(SOURCES)))[2])
    places = [at for at in range(2, len(pieces), 2) if "\n#" not in pieces[at - 1]]
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        at, other = choose.choice(places), choose.choice(places)
        kind = choose.randrange(6)
        if kind == 0:
            pieces[at] = ""
        elif kind == 1:
            pieces[at] += " " + pieces[at]
        elif kind == 2:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif kind == 3:
            pieces[at] = pieces[other]
        elif kind == 4:
            pieces[at] = choose.choice(_WORDS.split())
        else:
            until = min(at + 2 * choose.randrange(1, 12), len(pieces) - 1)
            pieces[at:until] = [""] * (until - at)
    return "".join(pieces)


def judge(seed: int) -> str:
    """Return what is wrong with the compiler's answer.

    "" for a good complaint, "accepted" when it had none.
    """
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
    if LONG and seed % 10 == 0:
        try:
            compile_program(text)
        except P4Error as error:
            return f"gcc refuses it: {str(error)[:1500]}"
    return "accepted"


@pytest.mark.timeout(0 if LONG else 300)
def test_mutants__compile_or_are_refused_with_a_place():
    wrong, accepted = {}, 0
    for seed in range(MUTANTS):
        found = judge(seed)
        accepted += found == "accepted"
        if found not in ("", "accepted"):
            wrong[seed] = found
            if LONG:
                print(f"seed {seed}: {found}", flush=True)
    assert not wrong, "\n\n".join(f"seed {seed}: {found}" for seed, found in list(wrong.items())[:5])
    assert accepted < MUTANTS / 2, f"{accepted} of {MUTANTS} mutants have nothing wrong: the mutations are too mild"
