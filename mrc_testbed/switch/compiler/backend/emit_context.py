"""State that the writers of a C file share: program, C types, functions, and the mutual references."""

from __future__ import annotations

from typing import Any, Protocol

from mrc_testbed.switch.compiler.backend.code import Code, c_word
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, Usage
from mrc_testbed.switch.compiler.backend.emit_types import CTypes
from mrc_testbed.switch.compiler.errors import Location
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ElaboratedProgram
from mrc_testbed.switch.compiler.sema.types import Type


class ExpressionWriter(Protocol):
    """Writes expressions: places need it for their indexes."""

    def value(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for the value of a scalar."""
        ...


class AssignmentWriter(Protocol):
    """Writes assignments: a place may be a variable that an expression fills."""

    def assign(self, lvalue: Lvalue, e: tree.Expr, frame: FunctionFrame) -> None:
        """place = e."""
        ...


class CallWriter(Protocol):
    """Writes calls: an expression may be one."""

    def value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """C expression for what a call gives."""
        ...


class StatementWriter(Protocol):
    """Writes statements: what is called has a body."""

    def statement(self, s: Any, frame: FunctionFrame) -> None:
        """Any statement."""
        ...

    def block(self, s: tree.Block, frame: FunctionFrame) -> None:
        """The statements of a block, without braces."""
        ...

    def declare(self, s: tree.Var, frame: FunctionFrame) -> None:
        """A local variable."""
        ...


class EmitContext:
    """One C file being written.

    A writer has those that it uses as its fields. P4 is recursive, though (an index is an expression, an
    expression a call, a call runs statements), so four of them stand here, for those made before them; the Emitter sets
    these.
    """

    expressions: ExpressionWriter
    assignments: AssignmentWriter
    calls: CallWriter
    statements: StatementWriter

    def __init__(self, program: ElaboratedProgram) -> None:
        self.program = program
        self.types = CTypes()
        self.usage = Usage()
        self.functions: list[Code] = []
        """C functions, callees before callers."""
        self.variables: list[tuple[str, str]] = []
        """Members of `struct variables`: (C type, name)."""
        self.functions_by_key: dict[tuple[Any, ...], str] = {}
        """Names of the C functions written, by what they are written for."""
        self.copies = 0
        """Variables and labels so far that a number tells apart."""
        self._names: set[str] = set()

    def function_name(self, stem: str) -> str:
        """A C name that no function has yet."""
        name, n = stem, 2
        while name in self._names:
            name, n = f"{stem}_{n}", n + 1
        self._names.add(name)
        return name

    def variable(self, stem: str, p4_type: Type, location: Location) -> Lvalue:
        """A new member of `struct variables`."""
        self.copies += 1
        name = f"{c_word(stem)}_{self.copies}"
        self.variables.append((self.types.declare_type(p4_type, location), name))
        return Lvalue(f"v->{name}", p4_type, f"v.{name}")
