"""A fuzz of the P4 compiler with mutants of good programs.

A mutant is accepted, or refused at a line and a column. `python -m tools.campaigns.p4_mutants` has `--help`.

Each seed takes a sample and drops, doubles, swaps or replaces one to three of its tokens. A mutant is a finding when
the compiler breaks, names no place, says nothing, never ends, or writes C that gcc refuses. Findings stay in FOLDER,
each as its program and the answer.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.switch.compiler.compiler import RUNTIME_DIR, translate
from mrc_testbed.switch.compiler.errors import P4Error
from mrc_testbed.switch.compiler.frontend.preprocess import preprocess
from tools.campaigns.work_limit import OutOfTimeError, work_limit

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = tuple(sorted([*(ROOT / "tests/switch/p4").glob("*.p4"), *(ROOT / "p4src").glob("s*.p4")]))
GCC_EVERY = 10
"""Seeds from one mutant whose C goes to gcc to the next; gcc takes longer than all the rest."""
ANSWER_S = 120
"""Processor time of one mutant, in seconds: a compiler that needs more is taken to hang."""
TOKEN = re.compile(r"[A-Za-z_]\w*|\d\w*|\"[^\"]*\"|&&&|\+\+|[<>=!|&+-]=|&&|\|\||\.\.|<<|\S")
_WORDS = """
    { } ( ) < > [ ] ; : , . ? = ! ~ @ - + * / % & | ^ &&& ++ .. if else apply table key actions bit int varbit
    header struct state transition select default exact lpm ternary true error void in out inout return exit const 0
    1 255 8w1 4294967296 0xffffffffffffffffffffffffffffffffff -1 main _ this tuple enum extern control parser
    package typedef type action switch for valid hdr isValid setValid next last extract emit hit action_run
    minSizeInBits maxSizeInBytes list value_set register counter meter hash @name("x") @hidden
"""


@cache
def tokens(sample: Path) -> list[str]:
    """Return the preprocessed sample: included text, then gaps and tokens of its own by turns."""
    text = preprocess(sample, (), ())[1]
    # the samples include before they declare: what follows the last return to the file is their own
    returns = [match.end() for match in re.finditer(rf'^# \d+ "{re.escape(str(sample))}" 2[^\n]*\n', text, re.M)]
    text_start = returns[-1] if returns else 0
    pieces, token_end = [text[:text_start]], text_start
    for token in TOKEN.finditer(text, text_start):
        pieces += [text[token_end : token.start()], token.group()]
        token_end = token.end()
    return [*pieces, text[token_end:]]


def mutant(seed: int, samples: Sequence[Path] = SAMPLES) -> str:
    """Return a program with one to three tokens, or runs of tokens, changed."""
    choose = random.Random(seed)
    pieces = list(tokens(choose.choice(samples)))
    token_indices = [index for index in range(2, len(pieces), 2) if "\n#" not in pieces[index - 1]]
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        index, other_index = choose.choice(token_indices), choose.choice(token_indices)
        mutation = choose.randrange(6)
        if mutation == 0:
            pieces[index] = ""
        elif mutation == 1:
            pieces[index] += " " + pieces[index]
        elif mutation == 2:
            pieces[index], pieces[other_index] = pieces[other_index], pieces[index]
        elif mutation == 3:
            pieces[index] = pieces[other_index]
        elif mutation == 4:
            pieces[index] = choose.choice(_WORDS.split())
        else:
            end_index = min(index + 2 * choose.randrange(1, 12), len(pieces) - 1)
            pieces[index:end_index] = [""] * (end_index - index)
    return "".join(pieces)


def judge(text: str, *, with_gcc: bool = False) -> str:
    """Return the verdict on the compiler: `accepted`, `refused`, or the kind and text of a fault."""
    try:
        with work_limit(ANSWER_S):
            c_text = translate(text)
    except P4Error as error:
        faults = map(fault_of, (error, *error.further_errors))
        return next((fault for fault in faults if fault), "refused")
    except OutOfTimeError:
        return f"endless: no answer within {ANSWER_S} s of processor time"
    except Exception:
        return f"traceback: {traceback.format_exc()[-1500:]}"
    if not with_gcc:
        return "accepted"
    command = ["gcc", "-fsyntax-only", "-w", "-I", str(RUNTIME_DIR), "-x", "c", "-"]
    gcc = subprocess.run(command, input=c_text, text=True, capture_output=True)
    return "accepted" if gcc.returncode == 0 else f"gcc: {gcc.stderr[:1500]}"


def fault_of(error: P4Error) -> str:
    """Return what is wrong with one error message, "" when it has words and a place."""
    if "internal error" in error.message:
        return f"internal: {error}"
    location = error.location
    if location is None:
        return f"no place: {error}"
    if location.line < 1 or location.column < 1 or not location.file.endswith(".p4"):
        return f"strange place: {error}"
    return "" if re.search(r"\w", error.message) else f"no words: {error}"


def campaign(first: int, runs: int, out: Path, samples: Sequence[Path] = SAMPLES) -> Counter[str]:
    """Judge `runs` mutants from the seed `first` on; return the count of each verdict.

    Findings are kept in `out`.
    """
    counts: Counter[str] = Counter()
    for seed in range(first, first + runs):
        text = mutant(seed, samples)
        verdict = judge(text, with_gcc=seed % GCC_EVERY == 0)
        kind = verdict.partition(":")[0]
        counts[kind] += 1
        if kind not in ("accepted", "refused"):
            print(f"seed {seed}: {verdict.splitlines()[0]}", flush=True)
            out.mkdir(parents=True, exist_ok=True)
            write_whole(out / f"seed-{seed}.p4", text.encode())
            write_whole(out / f"seed-{seed}.txt", f"{verdict}\n".encode())
    return counts


def fuzz(first: int, runs: int, out: Path, samples: Sequence[Path]) -> int:
    """Run the campaign and print its counts; exit code 1 with findings."""
    began = time.monotonic()
    counts = campaign(first, runs, out, samples or SAMPLES)
    answers = counts["accepted"] + counts["refused"]
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counts.most_common())
    print(f"fuzz p4-mutants: {runs:,} mutants from seed {first} in {time.monotonic() - began:.0f} s: {kinds}")
    if answers < runs:
        print(f"kept in {out}", file=sys.stderr)
    return 0 if answers == runs else 1


def main() -> int:
    """Command line: mutants of the samples, or of the programs named; exit code 1 with findings."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.p4_mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="mutants")
    parser.add_argument("--seed", type=int, default=1, help="the first mutant's")
    parser.add_argument("--out", type=Path, default=Path("fuzz-p4-mutants"), help="where findings are kept")
    parser.add_argument("programs", nargs="*", type=Path, help="samples instead of the tests' own")
    options = parser.parse_args()
    try:
        return fuzz(options.seed, options.runs, options.out, options.programs)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
