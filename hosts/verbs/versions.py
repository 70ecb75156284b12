"""Versions of the API, for applications and for controllers.

Those of the wire are `MrcProtocolVersion`.

>>> hex(query_version().current), query_version() == ctl_query_version()
('0x1000001', True)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ApiVersions:
    """Result of `mrc_query_version`; each is a number of `api_version`."""

    current: int
    last_supported: int
    vendor: int
    last_supported_vendor: int


def api_version(major: int, minor: int, sub_minor: int) -> int:
    """Return a version as one number, 8, 8 and 16 bits."""
    return major << 24 | minor << 16 | sub_minor


_VERSIONS = ApiVersions(api_version(1, 0, 1), api_version(1, 0, 0), api_version(1, 0, 0), api_version(1, 0, 0))


def query_version() -> ApiVersions:
    """Return the versions of the calls of `mrc.h`; no device is needed."""
    return _VERSIONS


def ctl_query_version() -> ApiVersions:
    """Return the versions of the calls of `mrc_ctl.h`, which are counted apart."""
    return _VERSIONS
