"""P4 switch in memory to test a program in Python: entries by names, packets in and expected.

    switch = P4Switch(compile_program(Path("router.p4")))
    switch.add("ipv4_lpm", {"dst": "10.0.1.0/24"}, "forward", port=2)
    switch.send(1, Ether() / IP(dst="10.0.1.9"))      # scapy packets, bytes or hexadecimal
    switch.expect(2, Ether() / IP(dst="10.0.1.9", ttl=63))

Names and values are those of STF (docs/p4-development.md), and `script` takes whole STF scripts. Time is virtual:
nothing sleeps. When a packet is not what was expected, the AssertionError shows where they differ and the last packet's
way through the program: everything done so far is done again on a second device, with the last packet traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, NoReturn

from finsy.proto import p4i

from mrc_testbed.switch.device.device import LoadableProgram, P4Device
from mrc_testbed.switch.device.entities import CounterData, TableEntry
from mrc_testbed.switch.device.p4data import flatten, p4_data
from mrc_testbed.switch.tools.stf import Command, StfCall, parse_script
from mrc_testbed.switch.tools.stf_resolve import find, key_field
from mrc_testbed.switch.tools.stf_run import StfRun, difference, rows

Value = int | str | bytes | tuple[int, int]
"""Value of a key field.

A text as in STF ("10.0.1.0/24", "0x12**"), a number, bytes, or a pair: (value, prefix length) for lpm, (value, mask)
for ternary, (low, high) for range.
"""

_REPEATED_MAX = 10_000
"""Most steps that are done again for a trace; after more, there is none."""


class P4Switch:
    """Program on a fresh device. Close it, or use it as a context manager.

    Wrong names and values raise StfError.
    """

    def __init__(self, program: LoadableProgram, *, seed: int = 0) -> None:
        self.program, self.seed = program, seed
        self.device = P4Device(1, program.name, seed=seed)
        """Device of the switch (switch/device/device.py), for operations without a method here.

        Operations called on it directly are missing in traces.
        """
        self.device.load(program)
        self._run = StfRun(self.device, program)
        self._steps: list[Callable[[StfRun], Any]] = []
        self._last_packet: tuple[int, int, bytes] | None = None
        """Number of its step, port, frame."""

    def __enter__(self) -> P4Switch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.device.close()

    # ---- packets

    def send(self, port: int, packet: Any) -> list[tuple[int, bytes]]:
        """A packet comes in; (port, frame) of what comes out at this moment. `expect` takes it, too."""
        frame = as_bytes(packet)
        counts_before = {out_port: len(frames) for out_port, frames in self._run.out.items()}
        self._last_packet = (len(self._steps), port, frame)
        self._do(lambda run: run.packet(port, frame))
        return [
            (out_port, out_frame)
            for out_port, out_frames in sorted(self._run.out.items())
            for out_frame in out_frames[counts_before.get(out_port, 0) :]
        ]

    def wait(self, seconds: float | None = None) -> None:
        """Let time pass; without a time, until nothing waits in queues and on cables."""
        self._do(lambda run: run.wait(seconds))

    def expect(self, port: int, packet: Any) -> bytes:
        """The oldest packet that came out of `port` and was not looked at yet is this one; returns it.

        A str is hexadecimal as in STF: `*` for any digit, and more may follow unless it ends in `$`.
        """
        frames = self._run.out.get(port) or []
        if isinstance(packet, str):
            digits, exact = "".join(packet.split()).lower().removesuffix("$"), packet.rstrip().endswith("$")
        else:
            digits, exact = as_bytes(packet).hex(), True
        if not frames:
            other_ports = "".join(
                f"\nport {out_port} sent\n{rows(frame)}"
                for out_port, unexpected_frames in self._unread_frames()
                for frame in unexpected_frames[:4]
            )
            self._fail(f"port {port} sent nothing (more){other_ports}")
        mismatch = difference(digits, exact, frames[0])
        if mismatch:
            self._fail(f"the packet of port {port} {mismatch}")
        return frames.pop(0)

    def frames(self, port: int) -> list[bytes]:
        """Take all frames that came out of a port and were not looked at yet, the oldest first."""
        frames = self._run.out.get(port, [])
        taken_frames, frames[:] = list(frames), []
        return taken_frames

    def expect_nothing(self) -> None:
        """No port has sent a packet that `expect` has not taken."""
        frames_text = "\n".join(
            f"port {out_port} sent\n{rows(frame)}" for out_port, frames in self._unread_frames() for frame in frames
        )
        if frames_text:
            self._fail(f"no packet was expected, but {frames_text}")

    def _unread_frames(self) -> list[tuple[int, list[bytes]]]:
        return [(out_port, frames) for out_port, frames in sorted(self._run.out.items()) if frames]

    # ---- tables

    def add(
        self,
        table: str,
        key: Mapping[str, Value],
        action: str,
        /,
        *,
        priority: int = 1,
        params: Mapping[str, Value] | None = None,
        **more_params: Value,
    ) -> TableEntry:
        """Insert an entry and return it.

        Keys left out match anything (exact ones: 0); the larger priority wins. Parameters of the action are keywords,
        or in `params` when one is called `priority` or `params`.
        """
        call = StfCall(action, tuple((k, _text(v)) for k, v in {**(params or {}), **more_params}.items()))
        script = self.program.name
        table_object = find(script, self._run.info.tables, table, "table")
        match = [
            (name, _key_text(value, key_field(script, table_object, name).match_type)) for name, value in key.items()
        ]
        entry = self._run.entry(script, table, match, call, priority)
        self._do(lambda run: run.device.insert(entry))
        return entry

    def default(self, table: str, action: str, /, **params: Value) -> None:
        """The default action of a table."""
        call = StfCall(action, tuple((k, _text(v)) for k, v in params.items()))
        self._do(lambda run: run.command(Command(self.program.name, "setdefault", {"table": table, "action": call})))

    def script(self, text: str) -> None:
        """Run STF lines: groups, clone sessions, meters, queues, ... Its `expect` lines count at once."""
        for command in parse_script(text, self.program.name):
            if command.word == "expect":
                end = "$" if command.fields["exact"] else ""
                self.expect(command.fields["port"], f"{command.fields['digits']}{end}")
                continue
            if command.word == "no_packet":
                self.expect_nothing()
                continue
            if command.word == "packet":
                self.send(command.fields["port"], command.fields["data"])
                continue
            self._do(methodcaller("command", command))
            if self._run.report.failures:
                self._fail("\n".join(self._run.report.failures))

    # ---- what the program counted

    def counter(self, name: str, index: int | TableEntry = 0) -> CounterData:
        """A cell of a counter; for a direct counter give the entry that `add` returned."""
        if isinstance(index, TableEntry):
            data = self.device.read_one(index).counter
            if data is None:
                self._fail("the table of this entry has no direct counter")
            return data
        object_ = find(self.program.name, self._run.info.counters, name, "counter")
        return self.device.read_counter(object_.preamble.id, index)[0][1]

    def register(self, name: str, index: int = 0) -> int:
        object_ = find(self.program.name, self._run.info.registers, name, "register")
        return self.device.read_register(object_.preamble.id, index)[0][1]

    def write_register(self, name: str, index: int, value: int) -> None:
        self.script(f"register_write {name} {index} {value}")

    def digests(self) -> list[dict[str, int]]:
        """Fields of the digests sent since the last call, the oldest first."""
        types = {digest.preamble.id: digest.type_spec for digest in self._run.info.digests}
        out = []
        for digest in self.device.digests():
            spec = types[digest.digest_id]
            out.append(
                flatten(spec, self._run.info, p4_data(spec, self._run.info, digest.data, self.device.schema.type_bits))
            )
        return out

    # ---- failures

    def trace(self) -> str:
        """The way of the last packet that came in, in words."""
        if self._last_packet is None:
            return "no packet has come in"
        number, port, frame = self._last_packet
        if number > _REPEATED_MAX:
            return f"no trace: more than {_REPEATED_MAX} steps came before the packet"
        with P4Switch(self.program, seed=self.seed) as second:
            second.device.advance(0)  # from now on its time is virtual, and the trace the same each time
            for step in self._steps[:number]:
                step(second._run)
            return f"the packet came in at port {port}:\n{rows(frame)}\n{second.device.trace(port, frame).text()}"

    def _do(self, step: Callable[[StfRun], Any]) -> None:
        step(self._run)
        if len(self._steps) <= _REPEATED_MAX:
            self._steps.append(step)

    def _fail(self, message: str) -> NoReturn:
        raise AssertionError(f"{self.program.name}: {message}\n\n{self.trace()}")


def as_bytes(packet: Any) -> bytes:
    """bytes, hexadecimal, or anything that bytes() takes: a scapy packet."""
    if isinstance(packet, str):
        return bytes.fromhex(packet)
    if isinstance(packet, int):
        raise TypeError(f"{packet} is no packet (want bytes, hexadecimal digits, or a scapy packet)")
    return bytes(packet)


def _text(value: Value) -> str:
    """A value as STF writes it."""
    if isinstance(value, bytes):
        return f"0x{value.hex() or '0'}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key_text(value: Value, kind: int) -> str:
    if not isinstance(value, tuple):
        return _text(value)
    signs: dict[int, str] = {p4i.MatchField.LPM: "/", p4i.MatchField.RANGE: ".."}
    sign = signs.get(kind, "&&&")
    return f"{_text(value[0])}{sign}{_text(value[1])}"
