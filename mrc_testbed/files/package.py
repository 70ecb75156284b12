"""Package on disk: its folder, the P4 programs and scenarios in it, and the checkout around it."""

from __future__ import annotations

import sys
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

PACKAGE = Path(str(files("mrc_testbed")))
"""Folder of the package. It is a real one: gcc, tcpdump and child processes open files in it."""
P4_PROGRAMS = (PACKAGE / "p4src").resolve()
SCENARIOS = (PACKAGE / "scenarios").resolve()
"""Folders of the P4 programs and scenarios that come with the testbed.

In a checkout both are links to folders at its top, which messages name.
"""
TOOLS = "tools"
"""Package of the benchmarks and campaigns, beside this one in a checkout."""


def has_tools() -> bool:
    """Return whether `tools` can be imported: in a checkout, whatever the current folder and sys.path are.

    A wheel has no tools. The name is common, so that the package of another project may stand on sys.path.
    """
    if sys.modules.get(TOOLS) is not None:
        return True
    folder = PACKAGE.parent / TOOLS
    if not (PACKAGE.parent / "pyproject.toml").is_file():
        return False
    spec = spec_from_file_location(TOOLS, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None or not folder.is_dir():
        return False
    sys.modules[TOOLS] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[TOOLS])
    return True
