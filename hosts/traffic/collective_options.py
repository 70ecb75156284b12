"""Options of collectives, apart from collectives.py because numpy comes with that."""

from __future__ import annotations

import msgspec


class CollectiveOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of a collective; those that a kind does not need are ignored by it."""

    groups: tuple[int, ...] = ()
    """all_reduce_hierarchical: the group (rack) of each rank, equally many ranks in each."""
    experts: int = 0
    """all_to_allv: experts of the layer, expert e at rank e modulo ranks; 0: one a rank."""
    skew: float = 0.0
    """all_to_allv: exponent of Zipf's law for the experts' shares of the tokens; 0: all alike."""
    reverse: bool = False
    """all_to_allv: back along the way of the one with the same `draw` (combine after dispatch)."""
    draw: int = 0
    """all_to_allv: which of the drawings of an iteration."""
    drawn_by: int = 0
    """all_to_allv: seed of the drawings; 0: that of the inputs."""
    at_once: int = 0
    """all_to_all: peers that a rank writes to at a time, the next when one write is complete; 0: all."""


NO_OPTIONS = CollectiveOptions()
