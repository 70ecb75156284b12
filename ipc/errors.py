"""Errors of the front door that are the user's: shown as one line, never as a traceback."""


class UsageError(Exception):
    """What the user asked cannot be done as asked; the message says what can."""
