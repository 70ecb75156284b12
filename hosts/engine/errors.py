"""Errors by origin: LocalError is our caller's fault, PeerError the other side's."""

from __future__ import annotations


class LocalError(ValueError):
    """Our own caller's request cannot be carried out; the message says what could."""


class PeerError(ValueError):
    """The other side said something that makes no sense; the message says what would."""


class WireError(ValueError):
    """A packet failed a check and is dropped; the message says which."""
