"""Expressions -> C lvalues."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mrc_testbed.switch.compiler.backend.code import c_name
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, element_of, parts_of
from mrc_testbed.switch.compiler.backend.emit_headers import out_of_bounds
from mrc_testbed.switch.compiler.backend.emit_types import STANDARD_METADATA
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Tuple, WideBits, form


@dataclass(eq=False, repr=False)
class LvalueEmitter:
    """Finds the lvalue of an expression. `frame` is the function being written."""

    context: EmitContext
    temporaries: int = field(default=0, init=False)
    index_decls: list[Any] = field(default_factory=list, init=False)
    """Declarations made here, so that no other gets their id()."""

    def lvalue(self, e: tree.Expr, frame: FunctionFrame) -> Lvalue:
        """Return the lvalue of an expression. Raises P4Error for what the backend cannot address."""
        if isinstance(e, tree.PathExpression):
            lvalue = frame.bindings.get(id(e.decl))
            if lvalue is None and isinstance(e.decl, tree.Const) and isinstance(form(e.type), (Record, WideBits)):
                return self.temporary_lvalue(e.decl.value, frame)
            if lvalue is None:
                raise_unsupported(e.location, f"{e.name} here")
            return lvalue
        if isinstance(e, tree.Index) and isinstance(e.base.type, Stack):
            return self._element(self.lvalue(e.base, frame), e.index, frame)
        if isinstance(e, tree.Index):
            assert isinstance(e.base.type, Tuple)
            tuple_lvalue = self.lvalue(e.base, frame)
            index: int = e.index.const
            return parts_of(tuple_lvalue)[index]
        if isinstance(e, tree.Member) and isinstance(e.base.type, Stack):
            return self._last_or_next(self.lvalue(e.base, frame), e, frame)
        if isinstance(e, tree.Member):
            base = self.lvalue(e.base, frame)
            record = form(base.type)
            assert isinstance(record, Record)
            name = e.name if record.name == STANDARD_METADATA else c_name(e.name)
            part = (base.key, record, e.name) if record.kind == "header" else base.field
            siblings: tuple[str, ...] = ()
            if record.kind == "header_union":
                siblings = tuple(f"{base.c}.{c_name(member)}" for member in record.fields if member != e.name)
            valid = f"{base.c}.is_valid" if record.kind == "header" else base.valid
            key = f"{base.key}.{e.name}"
            return Lvalue(f"{base.c}.{name}", record.fields[e.name], key, base.shared, part, siblings, valid)
        # A call, list or choice has no lvalue of its own: a local takes its value.
        if isinstance(form(e.type), (Record, Stack, WideBits)):
            return self.temporary_lvalue(e, frame)
        raise_unsupported(e.location, "this as something to write to")

    def temporary_lvalue(self, e: tree.Expr, frame: FunctionFrame) -> Lvalue:
        """Return a new local with the value of an expression that is no lvalue: a list, a call, a choice."""
        self.temporaries += 1
        name = frame.name("t")
        lvalue = Lvalue(name, e.type, f"temporary {self.temporaries}")
        frame.code.add(f"{self.context.types.declare_type(e.type, e.location)} {name} = {{0}};")
        self.context.assignments.assign(lvalue, e, frame)
        return lvalue

    def _element(self, stack: Lvalue, index: tree.Expr, frame: FunctionFrame) -> Lvalue:
        """stack[index]. An index beyond the end, known only at run time, means an element that nobody sees.

        In a parser it ends the parser with error.StackOutOfBounds, as `next` does.
        """
        stack_type = form(stack.type)
        assert isinstance(stack_type, Stack)
        if index.const is not None:
            return element_of(stack, index.const)
        name = frame.name("i")
        frame.code.add(
            f"uint32_t {name} = p4_index({self.context.expressions.value(index, frame)}, {stack_type.size});"
        )
        if frame.in_parser:
            out_of_bounds(f"{name} == {stack_type.size}", frame)
        return replace(element_of(stack, 0), c=f"{stack.c}.h[{name}]", shared=False)

    def _last_or_next(self, stack: Lvalue, e: tree.Member, frame: FunctionFrame) -> Lvalue:
        """Return `next` or `last` of a stack; out of range, the parser ends with an error."""
        stack_type = form(stack.type)
        assert isinstance(stack_type, Stack)
        if not frame.in_parser:
            raise_unsupported(e.location, f"`{e.name}` of a header stack outside a parser", "use an index")
        last = e.name == "last"
        out_of_bounds(f"{stack.c}.next == 0" if last else f"{stack.c}.next >= {stack_type.size}", frame)
        index = f"{stack.c}.next - 1" if last else f"{stack.c}.next"
        return replace(element_of(stack, 0), c=f"{stack.c}.h[{index}]", shared=False)

    def freeze_indexes(self, e: tree.Expr, frame: FunctionFrame) -> tree.Expr:
        """Return an lvalue whose indexes are evaluated now, not at the copying out (as P4 demands)."""
        if isinstance(e, tree.Slice) and e.width is not None:
            base = self.freeze_indexes(e.base, frame)
            frozen = tree.Slice(e.location, base, e.high, self._freeze_index(e.low, frame), e.width)
            frozen.type = e.type
            return frozen
        if isinstance(e, (tree.Member, tree.Slice)):
            base = self.freeze_indexes(e.base, frame)
            return e if base is e.base else _with_base(e, base)
        if isinstance(e, tree.Index) and e.index.const is None:
            return _with_base(e, self.freeze_indexes(e.base, frame), self._freeze_index(e.index, frame))
        return e

    def _freeze_index(self, e: tree.Expr, frame: FunctionFrame) -> tree.Expr:
        """The value that an index has now, as an expression."""
        name = frame.name("i")
        c_type = self.context.types.declare_type(e.type, e.location)
        frame.code.add(f"{c_type} {name} = {self.context.expressions.value(e, frame)};")
        frozen = tree.PathExpression(e.location, name)
        frozen.type, frozen.decl = e.type, tree.Var(e.location, [], name, tree.DontCareType(e.location), None)
        frame.bindings[id(frozen.decl)] = Lvalue(name, e.type, f"local {id(frozen)}")
        self.index_decls.append(frozen.decl)
        return frozen


def _with_base(e: Any, base: tree.Expr, index: tree.Expr | None = None) -> tree.Expr:
    """A copy of a Member, Slice or Index around another base (or with another index)."""
    if isinstance(e, tree.Member):
        out: tree.Expr = tree.Member(e.location, base, e.name)
    elif isinstance(e, tree.Slice):
        out = tree.Slice(e.location, base, e.high, e.low)
    else:
        out = tree.Index(e.location, base, index or e.index)
    out.type = e.type
    return out
