"""The frame of a page: style, escaping, tables. No script, nothing fetched; light and dark, wide and narrow."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

STYLE = """
:root { color-scheme: light dark; --fg: #1d2733; --soft: #566472; --line: #d8dfe6; --bg: #fff; --card: #f4f7f9;
  --good: #00724f; --bad: #b3420a; --warn: #fff4d6; --link: #005a9c; }
@media (prefers-color-scheme: dark) { :root { --fg: #dfe6ee; --soft: #9fadbb; --line: #37424e; --bg: #14191f;
  --card: #1c232b; --good: #4cc79a; --bad: #f08a4b; --warn: #3a2f12; --link: #7cc0ff; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); max-width: 64rem;
  margin: 1.5rem auto 4rem; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .2rem 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; } a { color: var(--link); }
.soft { color: var(--soft); } .good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0 1.6rem; } .picture { overflow-x: auto; } .picture > svg { display: block; width: 100%;
  min-width: 36rem; height: auto; } .picture > img { max-width: 100%; height: auto; background: #fff; }
figcaption { color: var(--soft); font-size: .87rem; } dl.beside { font-size: .9rem; margin: .4rem 0; }
dl.beside dt { font-weight: 600; float: left; clear: left; margin-right: .5rem; } dl.beside dd { margin: 0 0 .15rem 0; }
.card { background: var(--card); border-left: 3px solid var(--line); padding: .6rem 1rem; margin: 1rem 0; }
.warn { background: var(--warn); border-left: 3px solid var(--bad); padding: .6rem 1rem; margin: 1rem 0; }
details { margin: .5rem 0; border-top: 1px solid var(--line); padding-top: .3rem; }
summary { cursor: pointer; padding: .2rem 0; }
details details { border: 0; margin-left: .6rem; } pre { white-space: pre-wrap; font-size: .8rem; margin: .4rem 0; }
.key span { display: inline-block; margin-right: 1rem; font-size: .85rem; } .key i { display: inline-block; width: .9em;
  height: .9em; margin-right: .35em; vertical-align: -.1em; }
@media (max-width: 40rem) { body { margin-top: .6rem; padding: 0 .7rem; } th, td { padding: .2rem .35rem; }
  dl.beside dt { float: none; } .stack thead { display: none; } .stack td { display: block; border: 0; }
  .stack tr { display: block; border-bottom: 1px solid var(--line); } }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.pair figure { margin: 0; } .pair img { max-width: 100%; height: auto; background: #fff; }
@media print { details > * { display: block; } }
"""


def e(text: object) -> str:
    """Text for HTML."""
    return html.escape(str(text))


def mark(passed: bool, good: str = "passed", bad: str = "FAILED") -> str:
    """A verdict that is not told by colour alone."""
    return f'<span class="good">{good}</span>' if passed else f'<span class="bad">{bad}</span>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), stack: bool = False
) -> str:
    """A table of cells that are HTML already. `numbers`: columns set right; `stack`: one below another on a phone."""
    right = set(numbers)
    kind = [' class="n"' if at in right else "" for at in range(len(heads))]
    top = "".join(f'<th scope="col"{kind[at]}>{head}</th>' for at, head in enumerate(heads))
    lines = "".join(
        "<tr>" + "".join(f"<td{kind[at]}>{cell}</td>" for at, cell in enumerate(row)) + "</tr>" for row in rows
    )
    classes = ' class="stack"' if stack else ""
    return f'<div class="wide"><table{classes}><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


def shell(title: str, body: str) -> str:
    """A whole page."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{e(title)}</title>'
        f"<style>{STYLE}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )
