"""The agent: one process in each host, around NIC, engine and RPC services."""

from __future__ import annotations

from mrc_testbed.native_build import use

use()
