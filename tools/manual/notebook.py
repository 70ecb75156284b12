"""Runs the notebooks of examples/ and keeps their outputs in them.

    .venv/bin/python -m tools.manual.notebook        # after a change of a cell, or of what a cell shows

`make test` installs what it needs (nbclient). The metadata keep a digest of the cells that the outputs are of.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CELL_TIMEOUT_S = 300
EXTRA = ("nbclient", "nbformat")
"""Modules of the extra `notebook`, which few have and whose types differ with their versions."""
OUTPUTS_OF = "outputs_of_cells"
"""Key of a notebook's metadata: digest of the cells when they were run."""


def digest_of(book: Any) -> str:
    """Return the SHA-256 digest of the cells of code, in order."""
    sources = [cell["source"] for cell in book["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\0".join("".join(source) for source in sources).encode()).hexdigest()


def execute(path: Path) -> Any:
    """Return a notebook with the outputs of a fresh run."""
    nbclient, nbformat = map(import_module, EXTRA)
    book = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=CELL_TIMEOUT_S, record_timing=False, resources={"metadata": {"path": str(ROOT)}}
    )
    client.execute()
    # What the kernel says of itself would change with each Python.
    book.metadata["language_info"] = {"name": "python"}
    book.metadata[OUTPUTS_OF] = digest_of(book)
    return book


def main() -> None:
    """Run every notebook of examples/ and write it back with its outputs."""
    nbformat = import_module("nbformat")
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        nbformat.write(execute(path), path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
