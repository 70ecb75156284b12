"""The constant descriptors of tables, actions and state: what p4rt.h calls descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mrc_testbed.switch.compiler.backend.code import Code, c_string
from mrc_testbed.switch.compiler.backend.emit_bits import bytes_of, field_bits
from mrc_testbed.switch.compiler.backend.emit_functions import action_constant
from mrc_testbed.switch.compiler.errors import Location, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.p4info.p4info import (
    Ids,
    idle_timeouts,
    key_ids,
    key_name,
    param_ids,
    translated_types,
    value_set_keys,
)
from mrc_testbed.switch.compiler.sema.elaborate import (
    ActionInstance,
    ElaboratedProgram,
    TableInstance,
    ValueSetInstance,
)
from mrc_testbed.switch.compiler.sema.types import EnumType, Type, plain

_MATCH = {
    "exact": "P4RT_EXACT",
    "lpm": "P4RT_LPM",
    "ternary": "P4RT_TERNARY",
    "range": "P4RT_RANGE",
    "optional": "P4RT_OPTIONAL",
}
_COUNT = {"packets": "P4RT_COUNT_PACKETS", "bytes": "P4RT_COUNT_BYTES", "packets_and_bytes": "P4RT_COUNT_BOTH"}


class DescriptorEmitter:
    """Writes constant data of a program. `ids` numbers what the control plane sees."""

    def __init__(self, program: ElaboratedProgram, ids: Ids) -> None:
        self.program, self.ids = program, ids

    def code(self) -> Code:
        """Constant data of the program: what p4rt.h calls descriptors."""
        code = Code()
        # C wants the arrays that a descriptor points to before it.
        for action in self.program.actions:
            self._action_fields(action, code)
        code.open("static const struct p4rt_action_desc actions[] = {")
        for action in self.program.actions:
            params = [param for param in action.decl.params if not param.direction]
            size = sum(bytes_of(param.type, param.location) for param in params)
            code.add(
                f"[{action_constant(action)}] = {{{c_string(action.name)}, {self.ids.id_of('action', action.name)}, "
                f"{len(params)}, params_{action.word}, {size}, {int(_is_metered(action.decl))}}},"
            )
        code.add("{0},")
        code.close("};")
        for table in self.program.tables:
            self._table_parts(table, code)
        for value_set in self.program.value_sets:
            fields = ", ".join(
                f"{{{c_string(name)}, {number}, {bits}, {_MATCH[match]}}}"
                for number, name, bits, match in value_set_keys(value_set)
            )
            code.add(f"static const struct p4rt_field_desc members_{value_set.index}[] = {{{fields}}};")
        code.open("static const struct p4rt_table_desc tables[] = {")
        for table in self.program.tables:
            self._table(table, code)
        for value_set in self.program.value_sets:
            self._value_set(value_set, code)
        code.add("{0},")
        code.close("};")
        self._state(code)
        return code

    def _action_fields(self, action: ActionInstance, code: Code) -> None:
        code.open(f"static const struct p4rt_field_desc params_{action.word}[] = {{")
        for param, number in param_ids(action.decl):
            code.add(f"{{{c_string(param.name)}, {number}, {field_bits(param.type, param.location)}, P4RT_EXACT}},")
        code.add("{0},")
        code.close("};")

    def _table_parts(self, table: TableInstance, code: Code) -> None:
        word = table.word
        code.open(f"static const struct p4rt_field_desc fields_{word}[] = {{")
        for key, number in key_ids(table.decl):
            if key.match not in _MATCH:
                raise_unsupported(key.location, f"the match kind {key.match}")
            name = c_string(key_name(key))
            code.add(f"{{{name}, {number}, {field_bits(key.value.type, key.location)}, {_MATCH[key.match]}}},")
        code.add("{0},")
        code.close("};")
        action_list = ", ".join(action_constant(action) for action in table.actions)
        code.add(f"static const uint32_t actions_{word}[] = {{{action_list or '0'}}};")
        default = table.decl.properties.get("default_action")
        if default is not None:
            code.add(f"static const uint8_t default_{word}[] = {{{self._params(default.action)}0}};")
        if table.decl.entries:
            self._entries(table, table.decl.entries, code)

    def _table(self, table: TableInstance, code: Code) -> None:
        word, decl = table.word, table.decl
        default = decl.properties.get("default_action")
        names = [action.name for action in decl.actions]
        if default is not None:
            first = action_constant(table.actions[names.index(default.action.name)])
        else:
            # Without a default_action, a miss runs NoAction where the table lists it, as in p4c.
            first = action_constant(table.actions[names.index("NoAction")]) if "NoAction" in names else "P4RT_NONE"
        counter = _COUNT[table.direct_counter.args["type"]] if table.direct_counter else "P4RT_COUNT_NONE"
        code.open("{")
        code.add(
            f".name = {c_string(table.name)},",
            f".id = {self.ids.id_of('table', table.name)},",
            f".n_fields = {len(table.keys)},",
            f".fields = fields_{word},",
            f".key_bytes = {sum(bytes_of(key.value.type, key.location) for key in table.keys)},",
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

    def _value_set(self, value_set: ValueSetInstance, code: Code) -> None:
        keys = value_set_keys(value_set)
        code.open("{")
        code.add(
            f".name = {c_string(value_set.name)},",
            f".id = {self.ids.id_of('value_set', value_set.name)},",
            f".n_fields = {len(keys)},",
            f".fields = members_{value_set.index},",
            f".key_bytes = {sum((bits + 7) // 8 for _, _, bits, _ in keys)},",
            f".size = {value_set.size},",
            ".profile = P4RT_NONE,",
            ".default_action = P4RT_NONE,",
        )
        code.close("},")

    def _entries(self, table: TableInstance, entries: Sequence[tree.Entry], code: Code) -> None:
        word = table.word
        if any(action_ref.match == "selector" for action_ref in table.decl.key):
            raise_unsupported(table.decl.location, "entries in a table with a selector")
        names = [action_ref.name for action_ref in table.decl.actions]
        rows = []
        ordered = any(action_ref.match in ("ternary", "range", "optional") for action_ref in table.decl.key)
        priorities = table.priorities()
        for number, entry in enumerate(entries):
            key, aux = self._encode(table, entry)
            code.add(f"static const uint8_t key_{word}_{number}[] = {{{_bytes(key)}0}};")
            code.add(f"static const uint8_t aux_{word}_{number}[] = {{{_bytes(aux)}0}};")
            code.add(f"static const uint8_t args_{word}_{number}[] = {{{self._params(entry.action)}0}};")
            action = action_constant(table.actions[names.index(entry.action.name)])
            priority = priorities[number] if ordered else 0
            rows.append(
                f"{{key_{word}_{number}, aux_{word}_{number}, {priority}, {action}, args_{word}_{number}, "
                f"{int(table.decl.const_entries or entry.const)}}},"
            )
        code.open(f"static const struct p4rt_init_entry entries_{word}[] = {{")
        code.add(*rows)
        code.close("};")

    def _params(self, ref: tree.ActionRef) -> str:
        """The bytes of an action's arguments, as the beginning of a C initializer."""
        assert ref.decl is not None
        params = [param for param in ref.decl.params if not param.direction]
        pairs = zip(params, ref.args or [], strict=True)
        return "".join(_bytes(self._encode_value(arg.value.const, param.type, arg.location)) for param, arg in pairs)

    def _encode_value(self, value: Any, p4_type: Type, location: Location) -> bytes:
        """A compile-time value as a field of a key or a parameter: big-endian, right-aligned."""
        if isinstance(value, str):
            value = p4_type.number(value) if isinstance(p4_type, EnumType) else self.program.errors.index(value)
        bits = field_bits(p4_type, location)
        return (int(value) & (1 << bits) - 1).to_bytes((bits + 7) // 8, "big")

    def _encode(self, table: TableInstance, entry: tree.Entry) -> tuple[bytes, bytes]:
        """Key and aux of an entry; their meaning per match kind stands at struct p4rt_entry in p4rt.h."""
        keys = entry.keys
        if len(keys) == 1 and isinstance(keys[0], tree.DontCare):
            keys = [keys[0]] * len(table.keys)
        key = aux = b""
        for key_element, e in zip(table.keys, keys, strict=False):
            p4_type = (
                plain(key_element.value.type) if isinstance(e, (tree.Mask, tree.Range)) else key_element.value.type
            )
            all_ones = (1 << field_bits(p4_type, key_element.location)) - 1
            low, high = self._bounds(key_element.match, e, all_ones)
            key += self._encode_value(low, p4_type, key_element.location)
            aux += self._encode_value(high, p4_type, key_element.location)
        return key, aux

    @staticmethod
    def _bounds(match: str, e: tree.Expr, all_ones: int) -> tuple[object, object]:
        """(key, aux) of one field."""
        if isinstance(e, tree.DontCare):
            if match == "exact":
                raise_unsupported(e.location, "`_` for an exact key")
            return (0, all_ones) if match == "range" else (0, 0)
        if isinstance(e, tree.Mask):
            value, mask = e.value.const, e.mask.const & all_ones
            # A whole mask leaves the value alone, whatever the kind of key, as p4c reads it.
            if mask == all_ones:
                return value, value if match == "range" else all_ones
            is_prefix = (~mask & all_ones) & ((~mask & all_ones) + 1) == 0
            if match != "ternary" and not (match == "lpm" and is_prefix):
                raise_unsupported(e.location, f"the mask {mask:#x} for a key of kind {match}")
            return value & mask, mask
        if isinstance(e, tree.Range):
            if match != "range":
                raise_unsupported(e.location, f"a range for a key of kind {match}")
            return e.low.const, e.high.const
        return e.const, e.const if match == "range" else all_ones

    def _state(self, code: Code) -> None:
        """Profiles, counters, registers, meters and digests."""
        code.open("static const struct p4rt_meter_desc meters[] = {")
        for instance in self.program.of_kind("meter"):
            unit = int(instance.args["type"] == "bytes")
            meter_id, size = self.ids.id_of("meter", instance.name), instance.args["size"]
            code.add(f"{{{c_string(instance.name)}, {meter_id}, {size}, {unit}}},")
        # Every array ends in an empty element: C has no empty arrays.
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_digest_desc digests[] = {")
        for digest in self.program.digests:
            code.add(f"{{{c_string(digest.name)}, {self.ids.id_of('digest', digest.name)}}},")
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_type_desc types[] = {")
        for name, bits in translated_types(self.program).items():
            code.add(f"{{{c_string(name)}, {bits}}},")
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_profile_desc profiles[] = {")
        for instance in self.program.of_kind("action_profile", "action_selector"):
            note = instance.decl.annotation("max_group_size")
            largest = (note.number() if note else 0) or 0
            profile_id, size = self.ids.id_of("profile", instance.name), instance.args["size"]
            is_selector = int(instance.kind == "action_selector")
            code.add(f"{{{c_string(instance.name)}, {profile_id}, {size}, {largest}, {is_selector}}},")
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_counter_desc counters[] = {")
        for instance in self.program.of_kind("counter"):
            code.add(
                f"{{{c_string(instance.name)}, {self.ids.id_of('counter', instance.name)}, {instance.args['size']}, "
                f"{_COUNT[instance.args['type']]}}},"
            )
        code.add("{0},")
        code.close("};")
        code.open("static const struct p4rt_register_desc registers[] = {")
        for instance in self.program.of_kind("register"):
            bits = field_bits(instance.cell, instance.decl.location)
            register_id, size = self.ids.id_of("register", instance.name), instance.args["size"]
            code.add(f"{{{c_string(instance.name)}, {register_id}, {size}, {bits}}},")
        code.add("{0},")
        code.close("};")


def _bytes(data: bytes) -> str:
    return "".join(f"{byte:#04x}, " for byte in data)


def _is_metered(action: tree.Action) -> bool:
    """Whether an action reads a direct meter, itself or in an action that it calls."""
    callees = [node.callee for node in tree.walk(action.body) if isinstance(node, tree.Call)]
    return any(
        (callee.kind == "action" and _is_metered(callee.decl))
        or (callee.kind == "method" and callee.base.type.decl.name == "direct_meter")
        for callee in callees
        if callee is not None
    )
