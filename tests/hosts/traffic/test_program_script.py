"""Scripts of ranks as JSON."""

from __future__ import annotations

import msgspec

from mrc_testbed.hosts.traffic.program_script import RankScript, scripts_of
from tests.hosts.traffic.test_program_rank import step


def test_script__survives_json():
    for script in scripts_of(step(7, 4, 2)):
        assert msgspec.json.decode(msgspec.json.encode(script), type=RankScript) == script
