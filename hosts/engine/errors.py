"""Whose fault it is: LocalError our caller's, PeerError the other side's."""

from __future__ import annotations


class LocalError(ValueError):
    """Our own caller asked for something that cannot be done; the message says what could."""


class PeerError(ValueError):
    """The other side said something that makes no sense; the message says what would."""


class WireError(ValueError):
    """A packet failed a check and is dropped; the message says which."""
