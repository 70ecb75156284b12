"""The program that `mrc bench switch` times in a process of its own."""

import ast
from importlib import import_module

from bench.target import _COMPILE


def test_timed_program__imports_what_is_there():
    for node in ast.walk(ast.parse(_COMPILE)):
        if isinstance(node, ast.ImportFrom):
            module = import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert all(import_module(alias.name) for alias in node.names)
