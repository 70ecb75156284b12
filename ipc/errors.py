"""Errors of the front door that are the user's: shown as one line, never as a traceback."""


class UsageError(Exception):
    """A request of the user that cannot be met as made; the message says what can."""
