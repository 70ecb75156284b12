"""The ratchet of the words: each rule with a text that counts and one that does not.

And counts that only fall.
"""

from __future__ import annotations

import pytest

from tools import plain_words


def counts(source: str) -> dict[str, list[str]]:
    findings, _ = plain_words.findings_of("a.py", source)
    by_count: dict[str, list[str]] = {}
    for finding in findings:
        by_count.setdefault(finding.count, []).append(finding.text)
    return by_count


@pytest.mark.parametrize(
    "source",
    [
        "for one in links: pass",
        "def f(told): pass",
        "with open(x) as it: pass",
        "self._given = 3",
        "class What: pass",
        "[other for other in links]",
        "try: pass\nexcept E as why: pass",
        "import a as of",
        "(found := 3)",
        "planned: int = 3",
        "missing = links[0]",
    ],
)
def test_names__pronoun_participle_or_adjective_counts(source):
    assert len(counts(source).get("names", [])) == 1


@pytest.mark.parametrize(
    "source",
    [
        "for link in links: pass",
        "ready: bool = f()",
        "def f(planned: bool): pass",
        "missing = link is None",
        "def is_up(): pass",
        "acked = 3",
        "seed = speed = 3",
        "told_at_s = 3",
        "__all__ = ()",
    ],
)
def test_names__noun_or_flag_does_not_count(source):
    assert "names" not in counts(source)


@pytest.mark.parametrize(
    "text",
    [
        "Of one requestor.",
        "What a host does.",
        "The same as above.",
        "Sent when the timer expires.",
        "Called by the endpoint.",
        "Return the EVs",
        "",
    ],
)
def test_fragments__start_in_the_middle_or_no_end_counts(text):
    assert plain_words.is_fragment(text)


@pytest.mark.parametrize(
    "text",
    [
        "Return the EVs whose state is good.",
        "Tail-loss probe timer of one requestor.",
        "Wire form, in order:\n\n    a b",
        "One API endpoint.",
        "Seconds. None: no limit.",
        "Sent packets, oldest first.",
    ],
)
def test_fragments__noun_phrase_or_imperative_does_not_count(text):
    assert not plain_words.is_fragment(text)


def test_first_lines__only_a_sentence_of_100_characters_does_not_count():
    assert not plain_words.is_bad_first_line("Return the EVs.\n\nMore.")
    assert plain_words.is_bad_first_line("Return the EVs of a plane\nthat are good.")
    assert plain_words.is_bad_first_line("Return " + "x" * 100 + ".")


def test_attributes__text_below_an_assignment_is_a_docstring():
    assert counts('x: int\n"""Of one plane."""\n')["fragments"] == ["Of one plane."]


def test_texts__pronoun_as_subject_of_an_error_or_help_counts():
    assert counts('raise ValueError(f"{name}: it has no port")')["texts"]
    assert counts('option(help="That is a file.")')["texts"]
    assert "texts" not in counts('raise ValueError(f"{name}: no port 3 (ports: 1, 2)")')


def test_long_functions__a_comment_counts_and_a_directive_does_not():
    body = "".join(f"    x{n} = {n}\n" for n in range(26))
    assert counts(f"def f():\n{body}")["uncommented"] == ["f: 26 lines"]
    assert counts(f"def f():\n{body}    y = 1  # noqa: X\n")["uncommented"]
    assert "uncommented" not in counts(f"def f():\n{body}    # the link is down here\n    y = 1\n")


def test_parameters__more_than_eight_count_without_self():
    names = ", ".join(f"p{n}" for n in range(9))
    assert counts(f"def f({names}): pass")["parameters"] == ["f: 9"]
    assert "parameters" not in counts(f"def f(self, {names[:-4]}): pass")


def test_rises__name_package_and_count():
    assert plain_words.rises({"hosts": {"names": 1}}, {"hosts": {"names": 2}, "new": {"texts": 1}}) == [
        "hosts: names rose from 1 to 2",
        "new: texts rose from 0 to 1",
    ]
    assert plain_words.rises({"hosts": {"names": 2}}, {"hosts": {"names": 1}}) == []
