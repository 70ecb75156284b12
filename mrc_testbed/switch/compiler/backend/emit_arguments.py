"""Arguments of calls -> C arguments, copies before the call and copies after it."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.backend.code import c_word
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_externs import ExternEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts
from mrc_testbed.switch.compiler.backend.emit_headers import forget_bytes
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_types import STANDARD_METADATA
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.tree import walk
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance
from mrc_testbed.switch.compiler.sema.types import Object, is_scalar


@dataclass(eq=False, repr=False)
class ArgumentEmitter:
    """Passes arguments to actions, functions, controls and parsers."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter
    assignments: AssignmentEmitter
    externs: ExternEmitter

    def pass_all(self, e: tree.Call, frame: FunctionFrame) -> tuple[list[str], list[tuple[tree.Expr, str]]]:
        """Return the C arguments of an action or function, and what to copy out: (target, variable)."""
        texts: dict[int, str] = {}
        outs: dict[int, list[tuple[tree.Expr, str]]] = {}
        pairs = as_written(e, e.callee.args)
        for index, (param, arg) in enumerate(pairs):
            text, outs[id(param)] = self.pass_argument(param, arg, frame)
            later = any(acts(later_arg) for _, later_arg in pairs[index + 1 :])
            if later and text and param.direction not in ("out", "inout") and arg.const is None:
                temporary = frame.name("t")
                frame.code.add(f"{self.context.types.declare_type(param.type, arg.location)} {temporary} = {text};")
                text = temporary
            texts[id(param)] = text
        params = [param for param, _ in e.callee.args]
        return [texts[id(p)] for p in params if texts[id(p)]], [out for p in params for out in outs[id(p)]]

    def pass_argument(
        self, param: tree.Param, arg: tree.Expr, frame: FunctionFrame
    ) -> tuple[str, list[tuple[tree.Expr, str]]]:
        """C argument for one parameter ("" for none), and what is to be copied out after the call."""
        if isinstance(param.type, Object):
            return "", []
        if str(param.type) == STANDARD_METADATA:
            if self.lvalues.lvalue(arg, frame).key != "std":
                raise_unsupported(arg.location, "a standard_metadata_t other than the packet's")
            return "", []
        if param.direction not in ("out", "inout"):
            if is_scalar(param.type):
                return self.expressions.value(arg, frame), []
            lvalue = self.lvalues.lvalue(arg, frame)
            self.context.usage.note_whole(lvalue, False)
            return lvalue.c, []
        temporary = frame.name("t")
        c_type = self.context.types.declare_type(param.type, arg.location)
        start = ("0" if is_scalar(param.type) else "{0}") if param.direction == "out" else self._copy_in(arg, frame)
        frame.code.add(f"{c_type} {temporary} = {start};")
        copies = [] if isinstance(arg, tree.DontCare) else [(self.lvalues.freeze_indexes(arg, frame), temporary)]
        return f"&{temporary}", copies

    def parameters(self, params: list[tree.Param], inner: FunctionFrame) -> list[str]:
        """C parameters of an action or function: `out` and `inout` ones are pointers to the caller's copies."""
        out = []
        for param in params:
            if isinstance(param.type, Object):
                continue
            if str(param.type) == STANDARD_METADATA:  # there is only one: it is passed by name
                inner.bindings[id(param)] = Lvalue("pkt->std", param.type, "std", True)
                continue
            c = inner.name(param.name)
            c_type = self.context.types.declare_type(param.type, param.location)
            pointer = param.direction in ("out", "inout")
            out.append(f"{c_type} {'*' if pointer else ''}{c}")
            inner.bindings[id(param)] = Lvalue(f"(*{c})" if pointer else c, param.type, f"param {id(param)}")
            self.context.usage.note_whole(inner.bindings[id(param)], pointer)
        return out

    def _copy_in(self, arg: tree.Expr, frame: FunctionFrame) -> str:
        if is_scalar(arg.type):
            return self.expressions.value(arg, frame)
        lvalue = self.lvalues.lvalue(arg, frame)
        self.context.usage.note_whole(lvalue, False)
        return lvalue.c

    def copy_out(self, pairs: list[tuple[tree.Expr, str]], frame: FunctionFrame) -> None:
        for arg, temporary in pairs:
            self.assignments.store(arg, temporary, frame)

    def bound(
        self, inner: ControlInstance, pairs: list[tuple[tree.Param, tree.Expr]], frame: FunctionFrame
    ) -> tuple[dict[int, Lvalue], list[tuple[tree.Expr, Lvalue]]]:
        """Return the lvalues of a control's or parser's parameters, and what to copy out after the call.

        What lives in the packet is passed by name, unless two arguments overlap or the evaluation of one may change
        another; there is but one standard_metadata, which always goes by name.
        """
        bindings = self.instances(pairs, frame)
        pairs = [(param, arg) for param, arg in pairs if not isinstance(param.type, Object)]
        copies = []
        arg_calls = (
            node for _, arg in pairs for node in walk(arg) if isinstance(node, tree.Call) and node.callee is not None
        )
        acting = any(call.callee.kind in ("user", "table") for call in arg_calls)
        lvalues = [
            self.lvalues.lvalue(arg, frame)
            if isinstance(arg, (tree.PathExpression, tree.Member))
            and arg.const is None
            and not isinstance(getattr(arg, "decl", None), tree.Const)
            and not _has_call(arg)
            else None
            for _, arg in pairs
        ]
        for (param, arg), lvalue in zip(pairs, lvalues, strict=False):
            other_lvalues = [candidate for candidate in lvalues if candidate is not None and candidate is not lvalue]
            needs_new_copy = param.direction == "out" and not is_scalar(param.type)  # headers begin invalid
            is_separate = lvalue is not None and not any(
                _overlap(lvalue.key, candidate.key) for candidate in other_lvalues
            )
            is_separate = is_separate and not (acting and lvalue is not None and lvalue.key != "std")
            if lvalue is not None and lvalue.shared and is_separate and not needs_new_copy:
                bindings[id(param)] = lvalue
                continue
            copy = self.context.variable(f"{c_word(inner.name)}_{param.name}", param.type, param.location)
            bindings[id(param)] = copy
            if param.direction == "out":
                frame.code.add(f"{copy.c} = ({self.context.types.declare_type(param.type, arg.location)}){{0}};")
                forget_bytes(copy, frame)
            elif is_scalar(param.type):
                frame.code.add(f"{copy.c} = {self.expressions.value(arg, frame)};")
            else:
                self.assignments.assign(copy, arg, frame)
            if param.direction in ("out", "inout") and not isinstance(arg, tree.DontCare):
                copies.append((self.lvalues.freeze_indexes(arg, frame), copy))
        return bindings, copies

    def instances(self, pairs: list[tuple[tree.Param, tree.Expr]], frame: FunctionFrame) -> dict[int, Lvalue]:
        """Places of the parameters that are externs. packet_in and packet_out need none: there is one of each."""
        out: dict[int, Lvalue] = {}
        for param, arg in pairs:
            if isinstance(param.type, Object) and str(param.type) not in ("packet_in", "packet_out"):
                instance = self.externs.instance_of(arg, frame)
                if instance is None:
                    raise_unsupported(arg.location, "this instance as an argument")
                name = f"{instance.kind} {instance.index}"
                out[id(param)] = Lvalue(name, param.type, name, True, instance=instance)
        return out


def as_written(e: tree.Call, pairs: list[tuple[tree.Param, tree.Expr]]) -> list[tuple[tree.Param, tree.Expr]]:
    """Parameters with their arguments in the order in which a call has these; defaults last."""
    positions = {id(arg.value): position for position, arg in enumerate(e.args)}
    return sorted(pairs, key=lambda pair: positions.get(id(pair[1]), len(positions)))


def _has_call(e: tree.Expr) -> bool:
    return any(isinstance(node, tree.Call) for node in walk(e))


def _overlap(key: str, other_key: str) -> bool:
    return key == other_key or key.startswith(other_key + ".") or other_key.startswith(key + ".")
