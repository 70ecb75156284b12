"""Counters, meters and registers of a device (switch/device/device.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any, Literal

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.entities import CounterData, MeterConfig, TableEntry, TableError
from mrc_testbed.switch.device.schema import Array
from mrc_testbed.switch.device.state import DeviceState, check


class Arrays:
    """The counters, meters and registers of a device. All methods raise TableError."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state

    def _keep_cells(self, call: Any, array: Array, first: int, cells: Any) -> None:
        """Remember the cells that are about to be written, while in a transaction.

        `cells` is an empty buffer for their number.
        """
        if not self._state.in_transaction:
            return
        is_register = isinstance(cells, ctypes.Array) and cells._type_ is ctypes.c_char
        count = len(cells) // _cell_form(array)[0] if is_register else len(cells)
        if not call(self._state.handle, array.index, first, count, cells, 0):
            self._state.on_undo(lambda: call(self._state.handle, array.index, first, count, cells, 2))

    # ---- counters and registers -------------------------------------------------------------------------------

    def read_counter(self, counter_id: int, index: int | None = None) -> list[tuple[int, CounterData]]:
        """(index, value) of one cell or of all. INVALID_ARGUMENT, OUT_OF_RANGE."""
        with self._state.lock:
            counter = self._state.schema.find(self._state.schema.counters, counter_id, "counter")
            first, count = _span(counter, index)
            cells = (native.Cell * count)()
            error = self._state.lib.rt_counter_cells(self._state.handle, counter.index, first, count, cells, 0)
        check(error, counter.name, "cell", "")
        return [(first + i, counter_out(counter.kind, cell.packets, cell.bytes)) for i, cell in enumerate(cells)]

    def count_packets(self, counter_id: int, offset: int, cells: Collection[int]) -> int:
        """Return the sum of the packets in the cells offset + each of `cells`, at one moment.

        For frequent calls: one span is read, without an object for each cell. INVALID_ARGUMENT, OUT_OF_RANGE.
        """
        low, high = (offset + min(cells), offset + max(cells)) if cells else (offset, offset)
        with self._state.lock:
            counter = self._state.schema.find(self._state.schema.counters, counter_id, "counter")
            for index in (low, high):
                _span(counter, index)
            span = (native.Cell * (high - low + 1))()
            error = self._state.lib.rt_counter_cells(self._state.handle, counter.index, low, len(span), span, 0)
        check(error, counter.name, "cell", "")
        raw = (ctypes.c_uint64 * (2 * len(span))).from_buffer(span)
        return sum(raw[2 * (offset + cell - low)] for cell in cells) if counter.kind & 1 else 0

    def write_counter(self, counter_id: int, index: int | None, value: CounterData) -> None:
        """Set one cell, or all when `index` is None."""
        with self._state.lock:
            counter = self._state.schema.find(self._state.schema.counters, counter_id, "counter")
            first, count = _span(counter, index)
            cells = (native.Cell * count)(*[cell_in(counter.kind, value)] * count)
            self._keep_cells(self._state.lib.rt_counter_cells, counter, first, (native.Cell * count)())
            error = self._state.lib.rt_counter_cells(self._state.handle, counter.index, first, count, cells, 1)
        check(error, counter.name, "cell", "")

    def read_meter(self, meter_id: int, index: int | None = None) -> list[tuple[int, MeterConfig | None]]:
        """(index, configuration) of one cell or of all; None: not configured, always green."""
        with self._state.lock:
            meter = self._state.schema.find(self._state.schema.meters, meter_id, "meter")
            first, count = _span(meter, index)
            cells = (native.MeterCell * count)()
            error = self._state.lib.rt_meter_cells(self._state.handle, meter.index, first, count, cells, 0)
        check(error, meter.name, "cell", "")
        return [(first + i, _meter_out(cell)) for i, cell in enumerate(cells)]

    def write_meter(self, meter_id: int, index: int | None, config: MeterConfig | None) -> None:
        """Configure one cell, or all when `index` is None; buckets are full then. None: always green."""
        with self._state.lock:
            meter = self._state.schema.find(self._state.schema.meters, meter_id, "meter")
            first, count = _span(meter, index)
            cells = (native.MeterCell * count)(*[_meter_in(config, meter.name)] * count)
            self._keep_cells(self._state.lib.rt_meter_cells, meter, first, (native.MeterCell * count)())
            error = self._state.lib.rt_meter_cells(self._state.handle, meter.index, first, count, cells, 1)
        check(error, meter.name, "cell", "")

    def read_direct_meter(self, entry: TableEntry) -> MeterConfig | None:
        """Return the direct meter's configuration of the entry with this match and priority.

        NOT_FOUND, INVALID_ARGUMENT.
        """
        return self._direct_meter(entry, None, False)

    def write_direct_meter(self, entry: TableEntry, config: MeterConfig | None) -> None:
        """Configure it; None: always green."""
        self._direct_meter(entry, config, True)

    def _direct_meter(self, entry: TableEntry, config: MeterConfig | None, write: bool) -> MeterConfig | None:
        with self._state.lock:
            schema = self._state.schema
            table = schema.find(schema.tables, entry.table_id, "table")
            if table.id not in schema.tables_with_meter:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: has no direct meter")
            key, aux = (None, None) if entry.is_default else schema.encode_match(table, entry)
            cell = _meter_in(config, table.name) if write else native.MeterCell()
            if write and self._state.in_transaction:
                entry_key = (table.index, key or b"", aux or b"", entry.priority if key is not None else -1)
                previous = self.raw_meter(entry_key, None)
                self._state.on_undo(lambda: self.raw_meter(entry_key, previous))
            error = self._state.lib.rt_entry_meter(
                self._state.handle, table.index, key, aux, entry.priority, ctypes.byref(cell), write
            )
        check(error, table.name, "entry", "")
        return _meter_out(cell)

    def raw_meter(self, entry_key: tuple[int, bytes, bytes, int], cell: native.MeterCell | None) -> native.MeterCell:
        """Return the direct meter of an entry with its buckets' contents; `cell`, if given, replaces it.

        The entry has this table index, key, aux and priority (-1: the default entry).
        """
        index, key, aux, priority = entry_key
        buffer, selector = cell or native.MeterCell(), (None, None, 0) if priority < 0 else (key, aux, priority)
        self._state.lib.rt_entry_meter(
            self._state.handle, index, *selector, ctypes.byref(buffer), 0 if cell is None else 2
        )
        return buffer

    def read_register(self, register_id: int, index: int | None = None) -> list[tuple[int, int]]:
        """(index, value) of one cell or of all. INVALID_ARGUMENT, OUT_OF_RANGE."""
        with self._state.lock:
            register = self._state.schema.find(self._state.schema.registers, register_id, "register")
            first, count = _span(register, index)
            size, order = _cell_form(register)
            cells = ctypes.create_string_buffer(size * count)
            error = self._state.lib.rt_register_cells(self._state.handle, register.index, first, count, cells, 0)
        check(error, register.name, "cell", "")
        raw = cells.raw
        return [(first + i, int.from_bytes(raw[size * i : size * (i + 1)], order)) for i in range(count)]

    def write_register(self, register_id: int, index: int | None, value: int) -> None:
        """Set one cell, or all when `index` is None. OUT_OF_RANGE also when the value does not fit."""
        with self._state.lock:
            register = self._state.schema.find(self._state.schema.registers, register_id, "register")
            if value < 0 or value >> register.kind:
                text = f"{register.name}: {value:#x} does not fit in {register.kind} bits"
                raise TableError("OUT_OF_RANGE", text)
            first, count = _span(register, index)
            size, order = _cell_form(register)
            cells = value.to_bytes(size, order) * count
            self._keep_cells(
                self._state.lib.rt_register_cells, register, first, ctypes.create_string_buffer(size * count)
            )
            error = self._state.lib.rt_register_cells(self._state.handle, register.index, first, count, cells, 1)
        check(error, register.name, "cell", "")


def _cell_form(register: Array) -> tuple[int, Literal["little", "big"]]:
    """Bytes of a register's cell in the C runtime, and their order.

    Up to 128 bits it is a number of the machine, beyond that bytes as in p4wide.h.
    """
    bits = register.kind
    return (16, "little") if bits <= 128 else ((bits + 7) // 8, "big")


def _span(array: Array, index: int | None) -> tuple[int, int]:
    """(first, count) of the cells that `index` names."""
    if index is None:
        return 0, array.size
    if index < 0:
        raise TableError("INVALID_ARGUMENT", f"{array.name}: index {index} is negative")
    if index >= array.size:
        raise TableError("OUT_OF_RANGE", f"{array.name}: index {index} is not in 0..{array.size - 1}")
    return index, 1


def cell_in(kind: int, value: CounterData) -> native.Cell:
    """A counter's value as the C runtime has it; `kind` 1: packets, 2: bytes, 3: both. Raises TableError."""
    if not (0 <= value.packets < 1 << 63 and 0 <= value.bytes < 1 << 63):
        raise TableError("OUT_OF_RANGE", f"counter value {value} is not in 0..2**63-1")
    return native.Cell(value.packets if kind & 1 else 0, value.bytes if kind & 2 else 0)


def check_meter(config: MeterConfig | None, subject: str) -> None:
    """Raises TableError INVALID_ARGUMENT for rates that no meter can have."""
    if config is None:
        return
    numbers = (config.cir, config.cburst, config.pir, config.pburst)
    if not all(0 <= number < 1 << 40 for number in numbers) or config.pir < config.cir:
        text = f"{subject}: {config}: rates and bursts are 0 to 2**40-1, and pir not below cir"
        raise TableError("INVALID_ARGUMENT", text)


def _meter_in(config: MeterConfig | None, subject: str) -> native.MeterCell:
    check_meter(config, subject)
    return (
        native.MeterCell()
        if config is None
        else native.MeterCell(1, config.cir, config.cburst, config.pir, config.pburst)
    )


def _meter_out(cell: native.MeterCell) -> MeterConfig | None:
    return MeterConfig(cell.cir, cell.cburst, cell.pir, cell.pburst) if cell.configured else None


def counter_out(kind: int, packets: int, octets: int) -> CounterData:
    """A counter's value of the C runtime, without what its kind does not count."""
    return CounterData(packets if kind & 1 else 0, octets if kind & 2 else 0)
