"""Outputs of `--json` read by the types that `mrc schema` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from mrc_testbed.cli.json_schemas import types_of


def fit(name: str, output: Any) -> Any:
    """Read an output by a type of its schema, strictly; return it as it was."""
    mistakes = []
    for kind in types_of(name):
        try:
            msgspec.convert(output, kind, strict=True)
            return output
        except msgspec.ValidationError as error:
            mistakes.append(str(error))
    raise AssertionError(f"{name}: {'; '.join(mistakes)}: {str(output)[:400]}")
