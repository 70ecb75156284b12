"""A whole program -> one C file that a person can read beside its P4."""

from __future__ import annotations

from typing import Any

from mrc_testbed.switch.compiler.backend.code import Code, bits_of, c_comment, c_name, c_string, location_string
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_calls import CallEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_deparser import DeparserEmitter
from mrc_testbed.switch.compiler.backend.emit_descriptors import DescriptorEmitter
from mrc_testbed.switch.compiler.backend.emit_exits import Exits
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_externs import IMPLIED_LIST, ExternEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import Lvalue
from mrc_testbed.switch.compiler.backend.emit_functions import CALL, FunctionEmitter, action_constant
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_packed import PackedEmitter
from mrc_testbed.switch.compiler.backend.emit_packet_in import PacketInEmitter
from mrc_testbed.switch.compiler.backend.emit_packet_out import PacketOutEmitter
from mrc_testbed.switch.compiler.backend.emit_parser import ParserEmitter
from mrc_testbed.switch.compiler.backend.emit_stmt import StatementEmitter
from mrc_testbed.switch.compiler.backend.emit_tables import TableEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.p4info.p4info import Ids, translated_types
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance, ElaboratedProgram
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, WideBits, form, is_scalar

_PHASES = ("verify", "ingress", "egress", "compute")


class Emitter:
    """Writes the C file of one program: makes the writers, each with those that it uses."""

    def __init__(self, program: ElaboratedProgram, ids: Ids) -> None:
        self.program = program
        self.context = context = EmitContext(program)
        self.types, self.usage = context.types, context.usage

        lvalues = LvalueEmitter(context)
        wide_numbers = WideEmitter(context, lvalues)
        expressions = ExpressionEmitter(context, lvalues, wide_numbers)
        packed = PackedEmitter(context, lvalues, expressions)
        packet_in, packet_out = PacketInEmitter(context, lvalues, expressions), PacketOutEmitter(context, lvalues)
        assignments = AssignmentEmitter(context, lvalues, expressions, wide_numbers, packet_in)
        self.externs = ExternEmitter(context, lvalues, expressions, packed, assignments, packet_in, packet_out)
        arguments = ArgumentEmitter(context, lvalues, expressions, assignments, self.externs)
        self.functions = FunctionEmitter(context, expressions, assignments, arguments)
        exits = Exits()
        tables = TableEmitter(
            context, expressions, wide_numbers, packed, self.externs, arguments, self.functions, exits
        )
        self.parsers = ParserEmitter(context, lvalues, expressions, assignments, arguments)
        calls = CallEmitter(
            context, lvalues, assignments, self.externs, arguments, self.functions, tables, self.parsers, exits
        )
        context.expressions, context.assignments, context.calls = expressions, assignments, calls
        context.statements = StatementEmitter(context, lvalues, expressions, assignments, calls)
        self.deparser = DeparserEmitter(context, packet_out, self.functions)
        self.descriptors = DescriptorEmitter(program, ids)

    def text(self) -> str:
        """The C file."""
        program = self.program
        headers = form(program.parser.params[1].type)
        meta = form(program.parser.params[2].type)
        if isinstance(headers, Record):
            self.types.struct(headers)
        self.types.struct(meta)
        self.parsers.parse(self._bind(program.parser.params[1:]))
        calls = {phase: self._control(getattr(program, phase), phase) for phase in _PHASES}
        self.deparser.deparse(self._bind(program.deparser.decl.params[1:]))
        entry = self._entry_points(calls)
        descriptors = self.descriptors.code().text()
        functions = "\n".join(function.text() for function in self.context.functions)
        trace_fields = self._trace_fields()
        return "\n".join(
            (self._head(), self._structs(), descriptors, functions, entry.text(), trace_fields, self._program())
        )

    def _bind(self, params: list[tree.Param]) -> dict[int, Lvalue]:
        """Parameters of a top-level block: headers, metadata, standard metadata, in this order."""
        names = [("p->hdr", "p.hdr"), ("p->meta", "p.meta"), ("pkt->std", "std")]
        return {id(param): Lvalue(c, param.type, key, True) for param, (c, key) in zip(params, names, strict=False)}

    def _control(self, control: ControlInstance, phase: str) -> str:
        return self.functions.control(control, self._bind(control.decl.params), phase)

    # ---- parts of the file

    def _head(self) -> str:
        code = Code()
        code.add(
            f"/* {self.program.name}: generated by switch/compiler from {c_comment(self.program.main.location.file)}.",
            " *",
            " * Numbers in comments are line and column in the P4 source. Fields of headers that the program",
            " * never names are missing here: they stay in the frame. */",
            '#include "p4wide.h"'
            if any(isinstance(struct, WideBits) for struct in self.types.structs)
            else '#include "p4ops.h"',
            "",
        )
        code.open("enum {")
        for number, action in enumerate(self.program.actions):
            code.add(f"{action_constant(action)} = {number},")
        for number, name in enumerate(self.program.errors):
            code.add(f"P4_ERROR_{name} = {number},")
        code.close("};")
        code.add("#ifdef P4_TRACE")
        code.add(f"static const char *const error_names[] = {{{', '.join(map(c_string, self.program.errors))}}};")
        code.add("#endif")
        return code.text()

    def _structs(self) -> str:
        code = Code()
        for record in self.types.structs:
            # A number of more than 128 bits is a struct of bytes, or C could not copy it with `=`.
            if isinstance(record, WideBits):
                code.add(f"{self.types.struct(record)} {{ uint8_t b[{record.bytes}]; }};", "")
                continue
            if isinstance(record, Varbit):
                code.open(f"{self.types.struct(record)} {{")
                code.add("uint32_t bits;", f"uint8_t bytes[{(record.width + 7) // 8 or 1}];")
                code.close("};")
                code.add("")
                continue
            if isinstance(record, Stack):
                code.open(f"{self.types.struct(record)} {{")
                element = self.types.declare_type(record.element, self.program.main.location)
                code.add(f"{element} h[{record.size + 1}]; /* the last stands for all beyond the end */")
                if record.of_headers:
                    code.add("uint32_t next; /* where extract(next) goes */")
                code.close("};")
                code.add("")
                continue
            code.open(f"struct {c_name(record.name)} {{")
            if record.kind == "header":
                code.add("uint8_t is_valid;", "uint16_t at; /* where its bytes begin in the frame, or P4_AT_NONE */")
            names = self.usage.of_type(record) if record.kind == "header" else list(record.fields)
            for name in names:
                p4_type = record.fields[name]
                width = "" if is_scalar(p4_type) and not hasattr(form(p4_type), "width") else f" /* {p4_type} */"
                code.add(f"{self.types.declare_type(p4_type, record.decl.location)} {c_name(name)};{width}")
            if record.kind != "header" and not names:
                code.add("uint8_t empty;")
            code.close("};")
            code.add("")
        headers, meta = (
            self.types.declare_type(param.type, param.location) for param in self.program.parser.params[1:3]
        )
        code.add("/* The packet's state between ingress and egress. */")
        code.open("struct phv {")
        code.add(f"{headers} hdr;", f"{meta} meta;", "uint16_t parsed; /* bytes of headers in the frame */")
        code.close("};")
        code.add("", "/* Variables of controls, and arguments passed by copy. */")
        code.open("struct variables {")
        for meter in self.program.of_kind("direct_meter"):
            code.add(f"const struct p4rt_entry *metered_{meter.index}; /* entry of {c_comment(meter.name)} */")
        code.add(
            *(f"{p4_type} {name};" for p4_type, name in self.context.variables),
            *([] if self.context.variables else ["uint8_t none;"]),
        )
        code.close("};")
        return code.text()

    def _entry_points(self, calls: dict[str, str]) -> Code:
        code = Code()
        lists = self._field_lists()
        code.add("/* Metadata fields by @field_list: what clones and packets that go round again keep. */")
        code.add("static void keep_fields(const struct phv *from, struct phv *to, uint32_t list)")
        code.open("{")
        code.add("(void)from, (void)to, (void)list;")
        for number, fields in sorted(lists.items()):
            code.open(f"if (list == {number}) {{")
            code.add(*(f"to->meta.{field} = from->meta.{field};" for field in fields))
            code.close()
        code.close()
        code.add("")
        code.add("static void begin(struct p4rt_packet *pkt)")
        code.open("{")
        code.add("struct phv *p = pkt->phv;", "memset(p, 0, sizeof *p);")
        code.add_deferred(self._no_bytes)
        code.add("if (pkt->kept)", "    keep_fields(pkt->kept, p, pkt->kept_list);")
        code.close()
        code.add("")
        # A clone starts with the parser: its headers come from the frame, not from the original.
        code.add("static void parse_only(struct p4rt_device *dev, struct p4rt_packet *pkt)")
        code.open("{")
        code.add("struct phv *p = pkt->phv;", "struct variables variables, *v = &variables;")
        code.add("const void *kept = pkt->kept;", "", "pkt->kept = NULL;")
        code.add("begin(pkt);", 'P4_EVENT(P4RT_EV_START, "clone", "", NULL, 0);', f"parse({CALL});")
        code.add("memset(&p->meta, 0, sizeof p->meta);")
        code.add_deferred(self._no_meta_bytes)
        code.add("if (kept)", "    keep_fields(kept, p, pkt->kept_list);")
        code.close()
        code.add("")
        code.add("static void forget(struct p4rt_packet *pkt)")
        code.open("{")
        code.add("struct phv *p = pkt->phv, before = *p;")
        code.add("memset(&p->meta, 0, sizeof p->meta);")
        code.add_deferred(self._no_meta_bytes)
        code.add("keep_fields(&before, p, pkt->kept_list);")
        code.close()
        code.add("")
        code.add("static void ingress(struct p4rt_device *dev, struct p4rt_packet *pkt)")
        code.open("{")
        code.add("struct phv *p = pkt->phv;", "struct variables variables, *v = &variables;", "")
        code.add(*self._no_meters())
        code.add("begin(pkt);", 'P4_EVENT(P4RT_EV_START, "ingress", "", NULL, 0);', f"parse({CALL});")
        self._run("verify", calls, code)
        self._run("ingress", calls, code)
        code.close()
        code.add("")
        code.add("static void egress(struct p4rt_device *dev, struct p4rt_packet *pkt)")
        code.open("{")
        code.add("struct phv *p = pkt->phv;", "struct variables variables, *v = &variables;", "")
        code.add(*self._no_meters())
        code.add('P4_EVENT(P4RT_EV_START, "egress", "", NULL, 0);')
        self._run("egress", calls, code)
        code.close()
        code.add("")
        code.add("static void send(struct p4rt_device *dev, struct p4rt_packet *pkt)")
        code.open("{")
        code.add("struct phv *p = pkt->phv;", "struct variables variables, *v = &variables;", "")
        self._run("compute", calls, code)
        code.add(f"deparse({CALL});")
        code.close()
        return code

    def _no_meters(self) -> list[str]:
        """No table has been applied yet."""
        return [f"v->metered_{meter.index} = NULL;" for meter in self.program.of_kind("direct_meter")]

    def _field_lists(self) -> dict[int, list[str]]:
        """C paths below `meta` of the fields in each list that @field_list names."""
        out: dict[int, list[str]] = {}

        def visit(p4_type: Any, path: str) -> None:
            record = form(p4_type)
            if not isinstance(record, Record) or record.kind == "header":
                return
            for field in record.decl.fields:
                field_path = f"{path}{c_name(field.name)}"
                for number in field.lists:
                    out.setdefault(int(number.const), []).append(field_path)
                visit(record.fields[field.name], field_path + ".")

        visit(self.program.parser.params[2].type, "")
        out.update((IMPLIED_LIST + index, fields) for index, fields in enumerate(self.externs.implied_lists))
        return out

    def _run(self, phase: str, calls: dict[str, str], code: Code) -> None:
        control: ControlInstance = getattr(self.program, phase)
        code.add(f"P4_CONTROL({c_string(control.name)}, {location_string(control.decl.location)});")
        code.add(f"{calls[phase]}({CALL});", "P4_DONE();")

    def _no_bytes(self) -> list[str]:
        """No header has bytes in the frame until it is extracted."""
        return [f"{key.replace('p.', 'p->', 1)}.at = P4_AT_NONE;" for key in self._packet_headers()]

    def _no_meta_bytes(self) -> list[str]:
        return [line for line in self._no_bytes() if line.startswith("p->meta.")]

    def _packet_headers(self) -> list[str]:
        """C paths of the headers in `struct phv`, in order."""
        out: list[str] = []

        def visit(p4_type: Any, path: str) -> None:
            record = form(p4_type)
            if isinstance(record, Stack):
                for index in range(record.size + 1):
                    visit(record.element, f"{path}.h[{index}]")
            elif isinstance(record, Record):
                if record.kind == "header":
                    out.append(path)
                    return
                for name, inner in record.fields.items():
                    visit(inner, f"{path}.{c_name(name)}")

        for param, name in zip(self.program.parser.params[1:3], ("hdr", "meta"), strict=False):
            visit(param.type, f"p.{name}")
        return out

    def _trace_fields(self) -> str:
        """Return the table of packet fields and their offsets that the tracer reads."""
        code = Code()
        code.add("#ifdef P4_TRACE")
        code.open("static const struct p4rt_trace_field trace_fields[] = {")

        def visit(p4_type: Any, c: str, name: str) -> None:
            record = form(p4_type)
            # The tracer prints C integers only.
            if isinstance(record, (Varbit, WideBits)):
                return
            if isinstance(record, Stack):
                for index in range(record.size):
                    visit(record.element, f"{c}.h[{index}]", f"{name}[{index}]")
                return
            if not isinstance(record, Record):
                bits = bits_of(p4_type, self.program.main.location)
                code.add(f"{{{c_string(name)}, 0, offsetof(struct phv, {c}), {_size(bits)}, {bits}}},")
                return
            names = list(record.fields)
            if record.kind == "header":
                code.add(f"{{{c_string(name)}, 0, offsetof(struct phv, {c}.is_valid), 1, 0}},")
                names = self.usage.of_type(record)
            for field_name in names:
                visit(record.fields[field_name], f"{c}.{c_name(field_name)}", f"{name}.{field_name}")

        for param, c in zip(self.program.parser.params[1:3], ("hdr", "meta"), strict=True):
            visit(param.type, c, param.name)
        standard = self.program.parser.params[3]
        for name, p4_type in form(standard.type).fields.items():
            bits, c = bits_of(p4_type, standard.location), f"struct p4rt_std, {name}"
            size = f"sizeof(((struct p4rt_std *)0)->{name})"
            code.add(f"{{{c_string(f'{standard.name}.{name}')}, 1, offsetof({c}), {size}, {bits}}},")
        code.add("{0},")
        code.close("};")
        code.add("#endif")
        return code.text()

    def _program(self) -> str:
        program = self.program
        code = Code()
        # The one symbol that the device looks up; its fields are those of struct p4_program.
        code.open('__attribute__((visibility("default"))) const struct p4_program p4_program = {')
        code.add(
            ".abi = P4RT_ABI,",
            ".phv_bytes = sizeof(struct phv),",
            f".name = {c_string(program.name)},",
            ".parse = parse_only,",
            ".ingress = ingress,",
            ".egress = egress,",
            ".deparse = send,",
            ".forget = forget,",
            f".n_actions = {len(program.actions)},",
            f".n_tables = {len(program.tables) + len(program.value_sets)},",
            f".n_profiles = {len(program.of_kind('action_profile', 'action_selector'))},",
            f".n_counters = {len(program.of_kind('counter'))},",
            f".n_registers = {len(program.of_kind('register'))},",
            f".n_digests = {len(program.digests)},",
            f".n_meters = {len(program.of_kind('meter'))},",
            ".actions = actions,",
            ".tables = tables,",
            ".profiles = profiles,",
            ".counters = counters,",
            ".registers = registers,",
            ".digests = digests,",
            ".meters = meters,",
            f".n_types = {len(translated_types(program))},",
            ".types = types,",
            "#ifdef P4_TRACE",
            ".trace = trace_fields,",
            "#endif",
        )
        code.close("};")
        return code.text()


def _size(bits: int) -> int:
    """Bytes of c_type(bits)."""
    return next(size for size in (1, 2, 4, 8, 16) if bits <= size * 8)


def emit_c(program: ElaboratedProgram, ids: Ids) -> str:
    """C text of a program. Raises P4Error for what the backend lacks."""
    return Emitter(program, ids).text()
