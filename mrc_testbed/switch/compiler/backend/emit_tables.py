"""Tables -> C functions that look up and run. What describes the tables: emit_descriptors.py."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.backend.code import Code, bits_of, c_comment, c_type, literal, location_string
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter
from mrc_testbed.switch.compiler.backend.emit_bits import bytes_of, field_bits, load_bits, load_field, store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_exits import Exits
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_externs import ExternEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame
from mrc_testbed.switch.compiler.backend.emit_functions import CALL, SIGNATURE, FunctionEmitter, action_constant
from mrc_testbed.switch.compiler.backend.emit_packed import PackedEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.p4info.p4info import key_name
from mrc_testbed.switch.compiler.sema.elaborate import ActionInstance, ExternInstance, TableInstance
from mrc_testbed.switch.compiler.sema.types import MAX_BITS, WideBits, form

_MAX_KEY = 512
"""Bytes of a key, as p4rt.h has it."""


@dataclass(eq=False, repr=False)
class TableEmitter:
    """Writes the functions of tables."""

    context: EmitContext
    expressions: ExpressionEmitter
    wide_numbers: WideEmitter
    packed: PackedEmitter
    externs: ExternEmitter
    arguments: ArgumentEmitter
    functions: FunctionEmitter
    exits: Exits

    def function(self, table: TableInstance, frame: FunctionFrame) -> str:
        """Name of the C function that applies a table."""
        lvalues = sorted((k, p.c) for k, p in frame.bindings.items() if p.shared or p.c.startswith("v->"))
        key = (id(table), frame.phase, *lvalues)
        if key in self.context.functions_by_key:
            return self.context.functions_by_key[key]
        name = self.context.function_name(f"table_{table.word}")
        self.context.functions_by_key[key] = name
        code = Code()
        leaves = "return (struct p4_applied){.exited = 1};"  # a table applied for its key may
        inner = FunctionFrame(code, frame.bindings, table.control, frame.phase, at_exit=leaves)
        code.add(f"/* {c_comment(table.decl.location.short_text)}: table {table.decl.name} */")
        code.add(f"static inline struct p4_applied {name}({SIGNATURE})")
        code.open("{")
        size = self._key(table, inner)
        index = self.context.program.tables.index(table)
        code.add(f"struct p4rt_entry *entry = p4rt_apply(dev, {index}, key, {size}, pkt);")
        code.add("const struct p4rt_action *act = entry->act;")
        if table.profile is not None and table.profile.kind == "action_selector":
            self._select_member(table, table.profile, inner)
        if table.direct_meter is not None:
            code.add(f"v->metered_{table.direct_meter.index} = entry;")
        code.add("struct p4_applied result = {.hit = (uint8_t)entry->hit, .action = P4RT_NONE};")
        location = location_string(table.decl.location)
        code.add(f"P4_TABLE_EVENT({location}, {index}, key, {size}, entry, act);")
        code.open("if (act) {")
        code.add("result.action = act->action;")
        code.open("switch (act->action) {")
        for ref, action in zip(table.decl.actions, table.actions, strict=False):
            self._case(ref, action, inner)
        code.close()
        code.close()
        code.add("P4_DONE();", "(void)p, (void)v;", "return result;")
        code.close()
        self.context.functions.append(code)
        return name

    def _key(self, table: TableInstance, frame: FunctionFrame) -> int:
        """Write the key's 64-bit words and return its bytes: fields in order, byte-padded, big-endian."""
        pieces: list[tuple[str, int]] = []
        for number, field in enumerate(table.keys):
            if isinstance(form(field.value.type), WideBits):
                later = [later_key.value for later_key in table.keys[number + 1 :]]
                pieces.append(
                    (
                        self.wide_numbers.operand(field.value, frame, *later).c,
                        field_bits(field.value.type, field.location),
                    )
                )
                continue
            name = frame.name(f"k{number}")
            c_key = c_type(bits_of(field.value.type, field.location))
            frame.code.add(
                f"{c_key} {name} = {self.expressions.condition(field.value, frame)}; /* {c_comment(key_name(field))} */"
            )
            pieces.append((name, bits_of(field.value.type, field.location)))
        if sum((bits + 7) // 8 for _, bits in pieces) > _MAX_KEY:
            raise_unsupported(
                table.decl.location, f"table {table.name} with a longer key", f"up to {_MAX_KEY} bytes are"
            )
        return key_words(pieces, "key", frame)

    def _select_member(self, table: TableInstance, profile: ExternInstance, frame: FunctionFrame) -> None:
        """The hash is taken only for entries that point to a group."""
        data = [key.value for key in table.decl.key if key.match == "selector"]
        frame.code.open("if (entry->group) {")
        size = self.packed.pack(data, frame, "data")
        algorithm = tree.PathExpression(table.decl.location, "algorithm")
        algorithm.const = profile.args["algorithm"]
        width = profile.args["outputWidth"]
        if not 1 <= width <= 64:
            raise_unsupported(profile.decl.location, f"an outputWidth of {width}", "1 to 64 are")
        text = self.externs.hash_of(algorithm, "data", size)
        frame.code.add(f"act = p4rt_pick(entry->group, {text} & {literal((1 << width) - 1)});")
        frame.code.close()

    def _case(self, ref: tree.ActionRef, action: ActionInstance, frame: FunctionFrame) -> None:
        function = self.functions.action(action.decl, frame)
        direction_args = iter(ref.args or [])
        args, offset, copies = [], 0, []
        frame.code.open(f"case {action_constant(action)}: {{")
        for param in action.decl.params:
            # Parameters with a direction come from the program; the others are bytes of the entry.
            if param.direction:
                arg = next(direction_args).value
                text, out = self.arguments.pass_argument(param, arg, frame)
                args += [text] if text else []
                copies += out
                continue
            size = bytes_of(param.type, param.location)
            if isinstance(form(param.type), WideBits):
                name = frame.name("t")
                frame.code.add(f"{self.context.types.declare_type(param.type, param.location)} {name};")
                frame.code.add(load_field(name, "act->params", offset * 8, size * 8))
                args.append(name)
            else:
                text = load_bits("act->params", offset * 8, size * 8)
                args.append(f"({c_type(bits_of(param.type, param.location))}){text}")
            offset += size
        call = f"{function}({', '.join([CALL, *args])})"
        exits = self.exits.runs(action.decl, frame.control)
        frame.code.add(f"result.exited = (uint8_t){call};" if exits else f"{call};")
        self.arguments.copy_out(copies, frame)
        frame.code.add("break;")
        frame.code.close()


def key_words(fields: list[tuple[str, int]], key: str, frame: FunctionFrame) -> int:
    """Write the 64-bit words of a key of C variables with so many bits; returns its bytes."""
    size = sum((bits + 7) // 8 for _, bits in fields)
    if any(bits > MAX_BITS for _, bits in fields):
        frame.code.add(f"uint64_t {key}[{(size + 7) // 8}] = {{0}};")
        offset = 0
        for name, bits in fields:
            frame.code.add(store_bits(f"((uint8_t *){key})", offset, (bits + 7) // 8 * 8, name))
            offset += (bits + 7) // 8 * 8
        return size
    pieces, offset = [], 0
    for name, bits in fields:
        pieces.append((name, offset, (bits + 7) // 8))
        offset += (bits + 7) // 8
    words = []
    for word in range(max((offset + 7) // 8, 1)):
        parts = []
        for name, start, size in pieces:
            if start < (word + 1) * 8 and start + size > word * 8:
                shift = (word + 1) * 64 - (start + size) * 8
                shift_text = f" << {shift}" if shift > 0 else ""
                parts.append(f"(uint64_t){name}{shift_text}" if shift >= 0 else f"(uint64_t)({name} >> {-shift})")
        words.append(f"p4_be64({' | '.join(parts)})" if parts else "0")
    frame.code.add(f"uint64_t {key}[{len(words)}] = {{{', '.join(words)}}};")
    return offset
