"""Controls, actions and functions of the program -> C functions.

Every control, action and table becomes one function `int f(dev, pkt, p, v)`: p points to the headers and metadata of
the packet, v to the variables of the controls. A function returns 1 when the program said `exit`. A control whose
instance is applied with different arguments becomes one function for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.backend.code import Code, c_comment, c_word
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue
from mrc_testbed.switch.compiler.backend.emit_headers import forget_bytes
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ActionInstance, ControlInstance
from mrc_testbed.switch.compiler.sema.types import VOID, is_scalar

SIGNATURE = "struct p4rt_device *dev, struct p4rt_packet *pkt, struct phv *p, struct variables *v"
CALL = "dev, pkt, p, v"
_VOID_CASTS = "(void)dev, (void)pkt, (void)p, (void)v;"


@dataclass(eq=False, repr=False)
class FunctionEmitter:
    """Writes C functions, each on first use, so that callees stand before callers."""

    context: EmitContext
    expressions: ExpressionEmitter
    assignments: AssignmentEmitter
    arguments: ArgumentEmitter

    def control(self, control: ControlInstance, bindings: dict[int, Lvalue], phase: str) -> str:
        """Name of the C function of a control with these arguments; written on first use."""
        key = (id(control), phase, *sorted((k, p.c) for k, p in bindings.items()))
        if key in self.context.functions_by_key:
            return self.context.functions_by_key[key]
        name = self.context.function_name(f"control_{c_word(control.name)}")
        self.context.functions_by_key[key] = name
        code = Code()
        frame = FunctionFrame(code, dict(bindings), control, phase)
        decl = control.decl
        code.add(f"/* {c_comment(decl.location.short_text)}: control {decl.name}, as {c_comment(control.name)} */")
        code.add(f"static int {name}({SIGNATURE})")
        code.open("{")
        code.add(_VOID_CASTS)
        for local in decl.locals:
            if isinstance(local, tree.Var):
                self._local(local, control, frame)
        assert decl.body is not None
        self.context.statements.block(decl.body, frame)
        code.add("return 0;")
        code.close()
        self.context.functions.append(code)
        return name

    def _local(self, variable: tree.Var, control: ControlInstance, frame: FunctionFrame) -> None:
        """A variable of a control, which its actions see too."""
        lvalue = self.context.variable(f"{c_word(control.name)}_{variable.name}", variable.type, variable.location)
        frame.bindings[id(variable)] = lvalue
        if is_scalar(variable.type):
            frame.code.add(
                f"{lvalue.c} = {self.expressions.value(variable.value, frame) if variable.value is not None else '0'};"
            )
            return
        frame.code.add(f"{lvalue.c} = ({self.context.types.declare_type(variable.type, variable.location)}){{0}};")
        forget_bytes(lvalue, frame)
        if variable.value is not None:
            self.assignments.assign(lvalue, variable.value, frame)

    def action(self, decl: tree.Action, frame: FunctionFrame) -> str:
        """Name of the C function of an action as seen from `frame`'s control."""
        control = frame.control
        is_local = control is not None and id(decl) in control.members
        outer = {k: p for k, p in frame.bindings.items() if p.shared or p.c.startswith("v->")} if is_local else {}
        key = (id(decl), frame.phase, *sorted((k, p.c) for k, p in outer.items()))
        if key in self.context.functions_by_key:
            return self.context.functions_by_key[key]
        stem = f"{control.name}.{decl.name}" if is_local and control else decl.name
        name = self.context.function_name(f"action_{c_word(stem)}")
        self.context.functions_by_key[key] = name
        code = Code()
        inner = FunctionFrame(code, dict(outer), control if is_local else None, frame.phase)
        params = [SIGNATURE, *self.arguments.parameters(decl.params, inner)]
        code.add(f"/* {c_comment(decl.location.short_text)}: action {decl.name} */")
        code.add(f"static inline int {name}({', '.join(params)})")
        code.open("{")
        code.add(_VOID_CASTS)
        self.context.statements.block(decl.body, inner)
        code.add("return 0;")
        code.close()
        self.context.functions.append(code)
        return name

    def user(self, decl: tree.Function, frame: FunctionFrame, instances: dict[int, Lvalue]) -> str:
        """Return the C name of a P4 function for the externs given; the function is written on first use."""
        key = (id(decl), "function", *sorted((param_id, lvalue.c) for param_id, lvalue in instances.items()))
        if key in self.context.functions_by_key:
            return self.context.functions_by_key[key]
        name = self.context.function_name(f"function_{c_word(decl.name)}")
        self.context.functions_by_key[key] = name
        code = Code()
        c_type = "void" if decl.type == VOID else self.context.types.declare_type(decl.type, decl.location)
        inner = FunctionFrame(code, instances, None, frame.phase, at_exit="return;", returns=decl.type)
        params = [SIGNATURE, *self.arguments.parameters(decl.params, inner)]
        code.add(f"/* {c_comment(decl.location.short_text)}: function {decl.name} */")
        code.add(f"static {c_type} {name}({', '.join(params)})")
        code.open("{")
        code.add(_VOID_CASTS)
        self.context.statements.block(decl.body, inner)
        if decl.type != VOID:
            code.add("return 0;" if is_scalar(decl.type) else f"return ({c_type}){{0}};")
        code.close()
        self.context.functions.append(code)
        return name


def action_constant(action: ActionInstance) -> str:
    """Name of an action's index in the C file."""
    return f"ACTION_{action.word}"
