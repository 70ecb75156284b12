"""Errors of the front door that are the user's: shown as one line, never as a traceback."""


class UsageError(Exception):
    """A mistake in the user's request; the message names the cure."""
