"""Types of the values of a scenario file: quantities as texts with units, and the parts' base class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from math import inf
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mrc_testbed.console import units

SIZE_MAX, TIME_MAX_S = 1 << 50, 1e8
"""Largest size and time (three years) of a file; a run with more would not end."""


def _read_with(read: Callable[[object], Any], limit: float = inf, limit_text: str = "") -> BeforeValidator:
    def validate(value: object) -> Any:
        try:
            quantity = read(value)
        except units.UnitError as error:
            raise ValueError(str(error)) from None
        except OverflowError:
            raise ValueError(f"{value!r} is too much: give at most {limit_text}") from None
        if quantity > limit:
            raise ValueError(f"{value!r} is too much: give at most {limit_text}")
        return quantity

    return BeforeValidator(validate)


Rate = Annotated[float, _read_with(units.rate), Field(gt=0)]
Size = Annotated[int, _read_with(units.size, SIZE_MAX, "2**50 bytes")]
SomeSize = Annotated[Size, Field(ge=1)]
Seconds = Annotated[float, _read_with(units.seconds, TIME_MAX_S, "1e8 seconds")]
SomeSeconds = Annotated[Seconds, Field(gt=0)]
Share = Annotated[float, _read_with(units.share)]


def chance(text: object) -> dict[str, Any]:
    """`rate` of a share (`1%`, 0.01) or `pattern` of 0s and 1s (`0001`), for LossFault. Raises UnitError."""
    if isinstance(text, str) and re.fullmatch("[01]{2,}", text):  # a single 0 or 1 is a share
        return {"pattern": text}
    return {"rate": units.share(text)}


def suggestion(value: object, known: Iterable[str]) -> str:
    """`did you mean X?`, or all there are: the end of a message about a name that does not exist."""
    names = list(known)
    close = get_close_matches(str(value), names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"has: {', '.join(names)}"


class Part(BaseModel):
    """Base of all parts of a file: unknown keys are errors that tell the known ones."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys as a file writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            keys = cls.keys()
            texts = {str(key): f"no key {key!r} here ({suggestion(key, keys)})" for key in data if key not in keys}
            if texts:
                raise PydanticCustomError("unknown_key", "{text}", {"text": "; ".join(texts.values()), "texts": texts})
        return data
