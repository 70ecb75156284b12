"""Tables -> C functions that look up and run; and the constant descriptors of tables, actions and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from switch.compiler.backend.code import Code, bits_of, c_comment, c_string, c_type, literal, where_string
from switch.compiler.backend.emit_bits import field_bits, load_bits, load_field, store_bits
from switch.compiler.backend.emit_frame import FunctionFrame
from switch.compiler.backend.emit_stmt import CALL, SIGNATURE, Statements, action_constant
from switch.compiler.errors import Location, unsupported
from switch.compiler.frontend import tree
from switch.compiler.p4info.p4info import (
    Ids,
    idle_timeouts,
    key_ids,
    key_name,
    param_ids,
    translated_types,
    value_set_keys,
)
from switch.compiler.sema.elaborate import ActionInstance, ExternInstance, TableInstance, ValueSetInstance
from switch.compiler.sema.types import MAX_BITS, EnumType, Type, Wide, form, plain

_MATCH = {"exact": "P4RT_EXACT", "lpm": "P4RT_LPM", "ternary": "P4RT_TERNARY", "range": "P4RT_RANGE",
          "optional": "P4RT_OPTIONAL"}  # fmt: skip
_MAX_KEY = 512
"""Bytes of a key, as p4rt.h has it."""
_COUNT = {"packets": "P4RT_COUNT_PACKETS", "bytes": "P4RT_COUNT_BYTES", "packets_and_bytes": "P4RT_COUNT_BOTH"}


def bytes_of(of: Type, where: Location) -> int:
    """Bytes of a field in a key or among the parameters."""
    return (field_bits(of, where) + 7) // 8


class TableEmitter(Statements):
    """Writes tables. `ids` numbers what the control plane sees."""

    ids: Ids

    def table_function(self, table: TableInstance, frame: FunctionFrame) -> str:
        places = sorted((k, p.c) for k, p in frame.bindings.items() if p.shared or p.c.startswith("v->"))
        key = (id(table), frame.phase, *places)
        if key in self.done:
            return self.done[key]
        name = self.function_name(f"table_{table.word}")
        self.done[key] = name
        code = Code()
        leaves = "return (struct p4_applied){.exited = 1};"  # a table applied for its key may
        inner = FunctionFrame(code, frame.bindings, table.control, frame.phase, at_exit=leaves)
        code.add(f"/* {c_comment(table.decl.where.short)}: table {table.decl.name} */")
        code.add(f"static inline struct p4_applied {name}({SIGNATURE})")
        code.open("{")
        size = self._key(table, inner)
        index = self.program.tables.index(table)
        code.add(f"struct p4rt_entry *entry = p4rt_apply(dev, {index}, key, {size}, pkt);")
        code.add("const struct p4rt_action *act = entry->act;")
        if table.profile is not None and table.profile.kind == "action_selector":
            self._select_member(table, table.profile, inner)
        if table.direct_meter is not None:
            code.add(f"v->metered_{table.direct_meter.index} = entry;")
        code.add("struct p4_applied result = {.hit = (uint8_t)entry->hit, .action = P4RT_NONE};")
        where = where_string(table.decl.where)
        code.add(f"P4_TABLE_EVENT({where}, {index}, key, {size}, entry, act);")
        code.open("if (act) {")
        code.add("result.action = act->action;")
        code.open("switch (act->action) {")
        for ref, action in zip(table.decl.actions, table.actions, strict=False):
            self._case(ref, action, inner)
        code.close()
        code.close()
        code.add("P4_DONE();", "(void)p, (void)v;", "return result;")
        code.close()
        self.functions.append(code)
        return name

    def _key(self, table: TableInstance, frame: FunctionFrame) -> int:
        """Write the key's 64-bit words: the fields in order, each padded to bytes, big-endian; returns its bytes."""
        pieces: list[tuple[str, int]] = []
        for number, one in enumerate(table.keys):
            if isinstance(form(one.value.type), Wide):
                later = [other.value for other in table.keys[number + 1 :]]
                pieces.append((self.wide_operand(one.value, frame, *later).c, field_bits(one.value.type, one.where)))
                continue
            name = frame.name(f"k{number}")
            of = c_type(bits_of(one.value.type, one.where))
            frame.code.add(f"{of} {name} = {self.condition(one.value, frame)}; /* {c_comment(key_name(one))} */")
            pieces.append((name, bits_of(one.value.type, one.where)))
        if sum((bits + 7) // 8 for _, bits in pieces) > _MAX_KEY:
            unsupported(table.decl.where, f"table {table.name} with a longer key", f"up to {_MAX_KEY} bytes are")
        return self.key_words(pieces, "key", frame)

    @staticmethod
    def key_words(fields: list[tuple[str, int]], key: str, frame: FunctionFrame) -> int:
        """Write the 64-bit words of a key of C variables with so many bits; returns its bytes."""
        size = sum((bits + 7) // 8 for _, bits in fields)
        if any(bits > MAX_BITS for _, bits in fields):
            frame.code.add(f"uint64_t {key}[{(size + 7) // 8}] = {{0}};")
            at = 0
            for name, bits in fields:
                frame.code.add(store_bits(f"((uint8_t *){key})", at, (bits + 7) // 8 * 8, name))
                at += (bits + 7) // 8 * 8
            return size
        pieces, at = [], 0
        for name, bits in fields:
            pieces.append((name, at, (bits + 7) // 8))
            at += (bits + 7) // 8
        words = []
        for word in range(max((at + 7) // 8, 1)):
            parts = []
            for name, start, size in pieces:
                if start < (word + 1) * 8 and start + size > word * 8:
                    shift = (word + 1) * 64 - (start + size) * 8
                    moved = f" << {shift}" if shift > 0 else ""
                    parts.append(f"(uint64_t){name}{moved}" if shift >= 0 else f"(uint64_t)({name} >> {-shift})")
            words.append(f"p4_be64({' | '.join(parts)})" if parts else "0")
        frame.code.add(f"uint64_t {key}[{len(words)}] = {{{', '.join(words)}}};")
        return at

    def _select_member(self, table: TableInstance, profile: ExternInstance, frame: FunctionFrame) -> None:
        """The hash is taken only for entries that point to a group."""
        data = [one.value for one in table.decl.key if one.match == "selector"]
        frame.code.open("if (entry->group) {")
        size = self.packed(data, frame, "data")
        algorithm = tree.PathExpression(table.decl.where, "algorithm")
        algorithm.const = profile.args["algorithm"]
        width = profile.args["outputWidth"]
        if not 1 <= width <= 64:
            unsupported(profile.decl.where, f"an outputWidth of {width}", "1 to 64 are")
        text = self.hash_of(algorithm, "data", size)
        frame.code.add(f"act = p4rt_pick(entry->group, {text} & {literal((1 << width) - 1, 64)});")
        frame.code.close()

    def _case(self, ref: tree.ActionRef, action: ActionInstance, frame: FunctionFrame) -> None:
        function = self.action_function(action.decl, frame)
        directed = iter(ref.args or [])
        args, at, after = [], 0, []
        frame.code.open(f"case {action_constant(action)}: {{")
        for param in action.decl.params:
            if param.direction:
                arg = next(directed).value
                text, out = self.argument(param, arg, frame)
                args += [text] if text else []
                after += out
                continue
            size = bytes_of(param.type, param.where)
            if isinstance(form(param.type), Wide):
                name = frame.name("t")
                frame.code.add(f"{self.declare_type(param.type, param.where)} {name};")
                frame.code.add(load_field(name, "act->params", at * 8, size * 8))
                args.append(name)
            else:
                text = load_bits("act->params", at * 8, size * 8)
                args.append(f"({c_type(bits_of(param.type, param.where))}){text}")
            at += size
        call = f"{function}({', '.join([CALL, *args])})"
        exits = self.may_exit(action.decl, frame.control)
        frame.code.add(f"result.exited = (uint8_t){call};" if exits else f"{call};")
        self._copy_out(after, frame)
        frame.code.add("break;")
        frame.code.close()

    # ---- descriptors

    def descriptors(self) -> Code:
        """Constant data of the program: what p4rt.h calls descriptors."""
        code = Code()
        for action in self.program.actions:
            self._action_fields(action, code)
        code.open("static const struct p4rt_action_desc actions[] = {")
        for action in self.program.actions:
            params = [one for one in action.decl.params if not one.direction]
            size = sum(bytes_of(one.type, one.where) for one in params)
            code.add(f"[{action_constant(action)}] = {{{c_string(action.name)}, {self.ids.of('action', action.name)}, "
                     f"{len(params)}, params_{action.word}, {size}}},")  # fmt: skip
        code.add("{0},")
        code.close("};")
        for table in self.program.tables:
            self._table_parts(table, code)
        for one in self.program.value_sets:
            fields = ", ".join(
                f"{{{c_string(name)}, {number}, {bits}, {_MATCH[match]}}}"
                for number, name, bits, match in value_set_keys(one)
            )
            code.add(f"static const struct p4rt_field_desc members_{one.index}[] = {{{fields}}};")
        code.open("static const struct p4rt_table_desc tables[] = {")
        for table in self.program.tables:
            self._table(table, code)
        for one in self.program.value_sets:
            self._value_set(one, code)
        code.add("{0},")
        code.close("};")
        self._state(code)
        return code

    def _action_fields(self, action: ActionInstance, code: Code) -> None:
        code.open(f"static const struct p4rt_field_desc params_{action.word}[] = {{")
        for one, number in param_ids(action.decl):
            code.add(f"{{{c_string(one.name)}, {number}, {field_bits(one.type, one.where)}, P4RT_EXACT}},")
        code.add("{0},")
        code.close("};")

    def _table_parts(self, table: TableInstance, code: Code) -> None:
        word = table.word
        code.open(f"static const struct p4rt_field_desc fields_{word}[] = {{")
        for one, number in key_ids(table.decl):
            if one.match not in _MATCH:
                unsupported(one.where, f"the match kind {one.match}")
            name = c_string(key_name(one))
            code.add(f"{{{name}, {number}, {field_bits(one.value.type, one.where)}, {_MATCH[one.match]}}},")
        code.add("{0},")
        code.close("};")
        listed = ", ".join(action_constant(one) for one in table.actions)
        code.add(f"static const uint32_t actions_{word}[] = {{{listed or '0'}}};")
        default = table.decl.properties.get("default_action")
        if default is not None:
            code.add(f"static const uint8_t default_{word}[] = {{{self._params(default.value)}0}};")  # type: ignore[arg-type]
        if table.decl.entries:
            self._entries(table, table.decl.entries, code)

    def _table(self, table: TableInstance, code: Code) -> None:
        word, decl = table.word, table.decl
        default = decl.properties.get("default_action")
        names = [one.name for one in decl.actions]
        if default is not None:
            first = action_constant(table.actions[names.index(default.value.name)])  # type: ignore[attr-defined]
        else:
            first = action_constant(table.actions[names.index("NoAction")]) if "NoAction" in names else "P4RT_NONE"
        counter = _COUNT[table.direct_counter.args["type"]] if table.direct_counter else "P4RT_COUNT_NONE"
        code.open("{")
        code.add(
            f".name = {c_string(table.name)},",
            f".id = {self.ids.of('table', table.name)},",
            f".n_fields = {len(table.keys)},",
            f".fields = fields_{word},",
            f".key_bytes = {sum(bytes_of(one.value.type, one.where) for one in table.keys)},",
            f".size = {table.size},",
            f".n_actions = {len(table.actions)},",
            f".actions = actions_{word},",
            f".profile = {table.profile.index if table.profile else 'P4RT_NONE'},",
            f".default_action = {first},",
            f".default_params = {f'default_{word}' if default is not None else 'NULL'},",
            f".direct_counter = {counter},",
            f".idle_timeout = {int(idle_timeouts(table))},",
        )
        if decl.entries:
            code.add(f".n_entries = {len(decl.entries)},", f".entries = entries_{word},")
        code.close("},")

    def _value_set(self, one: ValueSetInstance, code: Code) -> None:
        keys = value_set_keys(one)
        code.open("{")
        code.add(
            f".name = {c_string(one.name)},",
            f".id = {self.ids.of('value_set', one.name)},",
            f".n_fields = {len(keys)},",
            f".fields = members_{one.index},",
            f".key_bytes = {sum((bits + 7) // 8 for _, _, bits, _ in keys)},",
            f".size = {one.size},",
            ".profile = P4RT_NONE,",
            ".default_action = P4RT_NONE,",
        )
        code.close("},")

    def _entries(self, table: TableInstance, entries: Sequence[tree.Entry], code: Code) -> None:
        word = table.word
        if any(one.match == "selector" for one in table.decl.key):
            unsupported(table.decl.where, "entries in a table with a selector")
        names = [one.name for one in table.decl.actions]
        rows = []
        ordered = any(one.match in ("ternary", "range", "optional") for one in table.decl.key)
        priorities = table.priorities()
        for number, entry in enumerate(entries):
            key, aux = self._encode(table, entry)
            code.add(f"static const uint8_t key_{word}_{number}[] = {{{_bytes(key)}0}};")
            code.add(f"static const uint8_t aux_{word}_{number}[] = {{{_bytes(aux)}0}};")
            code.add(f"static const uint8_t args_{word}_{number}[] = {{{self._params(entry.action)}0}};")
            action = action_constant(table.actions[names.index(entry.action.name)])
            priority = priorities[number] if ordered else 0
            rows.append(f"{{key_{word}_{number}, aux_{word}_{number}, {priority}, {action}, args_{word}_{number}, "
                        f"{int(table.decl.const_entries or entry.const)}}},")  # fmt: skip
        code.open(f"static const struct p4rt_init_entry entries_{word}[] = {{")
        code.add(*rows)
        code.close("};")

    def _params(self, ref: tree.ActionRef) -> str:
        """The bytes of an action's arguments, as the beginning of a C initializer."""
        assert ref.decl is not None
        params = [one for one in ref.decl.params if not one.direction]
        pairs = zip(params, ref.args or [], strict=True)
        return "".join(_bytes(self._stored(arg.value.const, param.type, arg.where)) for param, arg in pairs)

    def _stored(self, value: Any, of: Type, where: Location) -> bytes:
        """A compile-time value as a field of a key or a parameter: big-endian, right-aligned."""
        if isinstance(value, str):
            value = of.number(value) if isinstance(of, EnumType) else self.program.errors.index(value)
        bits = field_bits(of, where)
        return (int(value) & (1 << bits) - 1).to_bytes((bits + 7) // 8, "big")

    def _encode(self, table: TableInstance, entry: tree.Entry) -> tuple[bytes, bytes]:
        """Key and aux of an entry; their meaning per match kind stands at struct p4rt_entry in p4rt.h."""
        keys = entry.keys
        if len(keys) == 1 and isinstance(keys[0], tree.DontCare):
            keys = [keys[0]] * len(table.keys)
        key = aux = b""
        for one, e in zip(table.keys, keys, strict=False):
            of = plain(one.value.type) if isinstance(e, (tree.Mask, tree.Range)) else one.value.type
            ones = (1 << field_bits(of, one.where)) - 1
            low, high = self._bounds(one.match, e, ones)
            key += self._stored(low, of, one.where)
            aux += self._stored(high, of, one.where)
        return key, aux

    @staticmethod
    def _bounds(match: str, e: tree.Expr, ones: int) -> tuple[object, object]:
        """(key, aux) of one field."""
        if isinstance(e, tree.DontCare):
            if match == "exact":
                unsupported(e.where, "`_` for an exact key")
            return (0, ones) if match == "range" else (0, 0)
        if isinstance(e, tree.Mask):
            value, mask = e.value.const, e.mask.const & ones
            prefix = mask == 0 or (~mask & ones) & ((~mask & ones) + 1) == 0
            if match not in ("ternary", "lpm") or (match == "lpm" and not prefix):
                unsupported(e.where, f"the mask {mask:#x} for a key of kind {match}")
            return value & mask, mask
        if isinstance(e, tree.Range):
            if match != "range":
                unsupported(e.where, f"a range for a key of kind {match}")
            return e.low.const, e.high.const
        return e.const, e.const if match == "range" else ones

    def _state(self, code: Code) -> None:
        """Profiles, counters, registers, meters and digests."""
        code.open("static const struct p4rt_meter_desc meters[] = {")
        for one in self.program.of_kind("meter"):
            unit = int(one.args["type"] == "bytes")
            code.add(f"{{{c_string(one.name)}, {self.ids.of('meter', one.name)}, {one.args['size']}, {unit}}},")
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_digest_desc digests[] = {")
        for digest in self.program.digests:
            code.add(f"{{{c_string(digest.name)}, {self.ids.of('digest', digest.name)}}},")
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_type_desc types[] = {")
        for name, bits in translated_types(self.program).items():
            code.add(f"{{{c_string(name)}, {bits}}},")
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_profile_desc profiles[] = {")
        for one in self.program.of_kind("action_profile", "action_selector"):
            note = one.decl.annotation("max_group_size")
            largest = (note.number() if note else 0) or 0
            code.add(f"{{{c_string(one.name)}, {self.ids.of('profile', one.name)}, {one.args['size']}, {largest}, "
                     f"{int(one.kind == 'action_selector')}}},")  # fmt: skip
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_counter_desc counters[] = {")
        for one in self.program.of_kind("counter"):
            code.add(f"{{{c_string(one.name)}, {self.ids.of('counter', one.name)}, {one.args['size']}, "
                     f"{_COUNT[one.args['type']]}}},")  # fmt: skip
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_register_desc registers[] = {")
        for one in self.program.of_kind("register"):
            bits = bits_of(one.cell, one.decl.where)
            code.add(f"{{{c_string(one.name)}, {self.ids.of('register', one.name)}, {one.args['size']}, {bits}}},")
        code.add("{0},")
        code.close("};")


def _bytes(data: bytes) -> str:
    return "".join(f"{one:#04x}, " for one in data)
