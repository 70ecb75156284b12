"""Condition of the tests that compile the engine."""

from __future__ import annotations

import pytest

from mrc_testbed.native_build.build import missing_requirements

needs_compiler = pytest.mark.skipif(
    bool(missing_requirements()), reason=f"cannot compile here: {'; '.join(missing_requirements())}"
)
