"""Errors of the controller; the class tells whose fault it is, the text names cause and cure."""

from __future__ import annotations


class ControllerError(Exception):
    """Base of all errors of this package."""


class InputError(ControllerError):
    """Start-up configuration that cannot work: a file is missing or wrong, plan and program do not fit."""


class SwitchError(ControllerError):
    """A switch did not do what it was asked to; the text begins with its name.

    `retry`: True when it may work in a moment (not reachable, still booting, another primary), False when the
    switch has refused and will refuse again.
    """

    def __init__(self, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.retry = retry
