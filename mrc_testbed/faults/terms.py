"""Types of the values of a scenario file: quantities as texts with units, and the parts' base class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from mrc_testbed.console import units


def _read_with(read: Callable[[object], Any]) -> BeforeValidator:
    def validate(value: object) -> Any:
        try:
            return read(value)
        except units.UnitError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(validate)


Rate = Annotated[float, _read_with(units.rate)]
Size = Annotated[int, _read_with(units.size)]
Seconds = Annotated[float, _read_with(units.seconds)]
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

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def keys(cls) -> list[str]:
        """The keys as a file writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            keys = cls.keys()
            for key in data:
                if key not in keys:
                    text = f"no key {key!r} here ({suggestion(key, keys)})"
                    raise PydanticCustomError("unknown_key", "{text}", {"text": text, "key": str(key)})
        return data
