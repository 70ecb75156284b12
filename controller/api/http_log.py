"""Logger of the HTTP servers: internal errors, without requests that are no HTTP."""

from __future__ import annotations

import logging
from pathlib import Path

from aiohttp.http_exceptions import HttpProcessingError


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether a record is kept: aiohttp logs a traceback for each request that it cannot read."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def http_logger(name: str, file: Path | None = None) -> logging.Logger:
    """Return a logger for aiohttp's servers; with `file` it writes there and nowhere else."""
    log = logging.getLogger(name)
    if _is_ours not in log.filters:
        log.addFilter(_is_ours)
    if file is not None:
        for handler in list(log.handlers):
            log.removeHandler(handler)
            handler.close()
        log.addHandler(logging.FileHandler(file, delay=True))
        log.propagate = False
    return log
