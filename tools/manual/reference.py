"""Reference pages, made of the code: commands, words of the prompt, studies, metrics, engine.

Each function returns a page in Markdown. Nothing here is kept in the repository: `make docs` makes it anew.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

MADE_OF = "*Made of `{}` when the site is built.*"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; bars in cells are escaped."""
    names = list(header)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    """Text as code, also when it is empty."""
    return f"`{text}`" if text else ""


# ---- commands -----------------------------------------------------------------------------------------------


def commands() -> str:
    """`mrc` and everything below it, with all options."""
    from typer.main import get_command

    from mrc_testbed.cli.app import app

    root = get_command(app)
    parts = [
        "# Commands, option by option",
        MADE_OF.format("mrc_testbed/cli") + " What they are for: [Commands](../commands.md).",
    ]
    return "\n\n".join([*parts, *_command(root, ["mrc"])]) + "\n"


def _command(command: Any, words: list[str]) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    yield f"{'#' * min(len(words) + 1, 4)} {' '.join(words)}"
    if command.help:
        yield inspect.cleandoc(command.help)
    visible_params = [param for param in command.params if not getattr(param, "hidden", False)]
    if visible_params and (len(words) > 1 or not subcommands):
        yield table(("", "takes", "default", ""), [_parameter(param) for param in visible_params])
    if command.epilog:
        yield inspect.cleandoc(command.epilog)
    for name, subcommand in subcommands.items():
        if not getattr(subcommand, "hidden", False):
            yield from _command(subcommand, [*words, name])


def _parameter(param: Any) -> tuple[str, str, str, str]:
    options = [*param.opts, *param.secondary_opts]
    is_option = options[0].startswith("-")
    name = ", ".join(map(code, options)) if is_option else code(param.metavar or options[0].upper())
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    takes = "" if kind is bool or not is_option else (param.metavar or getattr(kind, "__name__", "text"))
    default = "" if param.default in (None, False, ()) or callable(param.default) else str(param.default)
    presence = "needed" if param.required else code(default)
    return name, {"str": "text", "int": "number", "float": "number"}.get(takes, takes), presence, param.help or ""


def prompt() -> str:
    """Words of the prompt, with the help they print."""
    from mrc_testbed.cli.prompt.commands import WORDS

    parts = [
        "# Words of the prompt, one by one",
        MADE_OF.format("mrc_testbed/cli/prompt/commands") + " A tour with output: [The prompt](../cli.md).",
    ]
    groups: dict[str, list[Any]] = {}
    for word in WORDS.values():
        groups.setdefault(word.group, []).append(word)
    for group, words in groups.items():
        parts.append(f"## {group}")
        for word in words:
            reads = "\n\n`--json` prints the same as JSON." if word.reads else ""
            parts.append(f"### {word.name}\n\n```text\n{word.help}\n```{reads}")
    return "\n\n".join(parts) + "\n"


# ---- files that users write ----------------------------------------------------------------------------------


def studies() -> str:
    """Every key of a study file."""
    from mrc_testbed.experiments.study import model

    parts = [
        "# Study files, key by key",
        MADE_OF.format("mrc_testbed/experiments/study/model.py") + " How to write one: [Studies](../studies.md).",
    ]
    for name, kind in _classes(model):
        if kind.__module__ == model.__name__:
            parts += _record(name, kind)
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    """Every metric that rules and figures may name, and what a run's series have."""
    from mrc_testbed.experiments.language.metric_names import METRICS

    rows = [
        (code(metric.pattern), metric.unit, metric.text, "yes" if metric.series else "", "" if metric.timed else "yes")
        for metric in METRICS
    ]
    parts = [
        "# Metrics",
        MADE_OF.format("mrc_testbed/experiments/language/metric_names.py"),
        "`NAME` is the name of a workload, `PORT` an interface. *Over a part*: a rule may ask for it `from` a time "
        "`to` another. *Exact*: the same on any machine, however busy.",
        table(("metric", "unit", "what", "over a part", "exact"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def prometheus() -> str:
    """Every metric of the controller's `/metrics`."""
    from mrc_testbed.controller.api.metrics import FAMILIES

    rows = [(code(family.name), ", ".join(map(code, family.labels)), family.text) for family in FAMILIES]
    parts = [
        "# Metrics for Prometheus",
        MADE_OF.format("controller/api/metrics.py") + " How to scrape them: [Monitoring](../monitoring.md).",
        table(("metric", "labels", ""), rows),
    ]
    return "\n\n".join(parts) + "\n"


def engine() -> str:
    """Every key of an endpoint's configuration, and of the RoCEv2 baseline."""
    from mrc_testbed.hosts.engine.config import Config
    from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig

    parts = [
        "# Keys of the engine",
        MADE_OF.format("hosts/engine/config.py")
        + " A scenario sets them with `transport: {config: {...}}`. Sections (§) are those of the "
        "[protocol](../spec/mrc-protocol.md).",
    ]
    parts.append("## MRC")
    for field in fields(Config):
        group = getattr(Config(), field.name)
        parts += [first_sentence(type(group)), _limited_keys(type(group), group.PREFIX)]
    parts += ["## RoCEv2 baseline", _limited_keys(RcConfig)]
    return "\n\n".join(parts) + "\n"


def _limited_keys(kind: type, prefix: str = "") -> str:
    """Table of a record's keys with their limits; a key is prefix and field."""
    from mrc_testbed.hosts.engine.config_limits import limits_of

    rows = []
    for field, _, default, text in fields_of(kind):
        limit = str(limits_of(kind)[field][1][0])
        choices = limit.removeprefix("must be ").removeprefix("one of ").partition(":")[0]
        rows.append((code(prefix + field), choices, code(default), text))
    return table(("key", "values", "default", ""), rows)


def _record(name: str, kind: type) -> list[str]:
    rows = [(code(key), code(type_of), code(default), text) for key, type_of, default, text in fields_of(kind)]
    if not rows:
        return []
    base = kind.__mro__[1]
    also = f" Also has the keys of {base.__name__}." if base.__module__ == kind.__module__ else ""
    description = inspect.cleandoc(kind.__doc__ or "").replace("\n\n", "\n").replace("\n", " ")
    return [f"## {name}", description + also, table(("key", "type", "default", ""), rows)]


# ---- reading the code ---------------------------------------------------------------------------------------


def fields_of(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, type, default, text) of each field that a class declares.

    The text is the string below the field.
    """
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for line, next_statement in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        kind_of = re.sub(r"Annotated\[(\w+), Field\((.*)\)\]", r"\1, \2", ast.unparse(line.annotation))
        kind_of = kind_of.replace(" | ", " or ")
        if line.target.id.startswith("_") or "ClassVar" in kind_of:
            continue
        key, default = line.target.id, line.value
        if isinstance(default, ast.Call) and ast.unparse(default.func) == "Field":
            keywords = {keyword.arg: keyword.value for keyword in default.keywords}
            if isinstance(alias := keywords.get("alias"), ast.Constant):
                key = str(alias.value)
            default = default.args[0] if default.args else None
        text = ""
        if isinstance(next_statement, ast.Expr) and isinstance(next_statement.value, ast.Constant):
            text = inspect.cleandoc(str(next_statement.value.value))
        yield key, kind_of, "needed" if default is None else ast.unparse(default), text


def first_sentence(kind: type) -> str:
    """First paragraph of a docstring, in a line."""
    return inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def fault_value(kind: Any) -> str:
    """Value of a fault's key, as a file writes it."""
    from mrc_testbed.faults import places

    for union, text in ((places.Links, "a link"), (places.Nodes, "a node")):
        if kind == union:
            return f"{text}, a list of them, or `{{random: ...}}`"
    if isinstance(kind, type) and hasattr(kind, "model_fields"):
        return ", ".join(map(code, kind.keys()))  # type: ignore[attr-defined]
    words = getattr(kind, "__args__", None)
    return ", ".join(code(str(word).lower()) for word in words) if words else code(kind.__name__)


def _classes(module: ModuleType) -> Iterator[tuple[str, type]]:
    for name, value in vars(module).items():
        if isinstance(value, type):
            yield name, value


PAGES: dict[str, Callable[[], str]] = {
    "manual/commands.md": commands,
    "manual/prompt.md": prompt,
    "manual/studies.md": studies,
    "manual/metrics.md": metrics,
    "manual/prometheus.md": prometheus,
    "manual/engine.md": engine,
}
"""Functions that make the pages, by path in the site."""
