"""Mininet's classes, imported with the standard library's `distutils` where there is one.

Mininet compares versions of Open vSwitch by `distutils.version`. setuptools puts itself before the standard library's,
which costs each start a third of a second; Python 3.12 and later have none but that of setuptools.
"""

from __future__ import annotations

import contextlib
import sys
import warnings

if sys.version_info < (3, 12):
    with contextlib.suppress(ImportError):
        from _distutils_hack import remove_shim

        remove_shim()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import distutils.version  # noqa: F401

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import lg
from mininet.net import Mininet
from mininet.node import Host, Node, Switch

__all__ = ["CLI", "Host", "Intf", "Link", "Mininet", "Node", "Switch", "lg"]
