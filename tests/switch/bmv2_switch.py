"""STF scripts on BMv2, to be compared with our switch; tools/campaigns/bmv2.py has the switch itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.switch.compiler import CompiledProgram
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.p4data import flatten, p4_data
from mrc_testbed.switch.tools.stf import Command
from mrc_testbed.switch.tools.stf_run import StfRun
from tools.campaigns.bmv2 import Bmv2, P4cProgram

NOT_ON_BMV2 = {
    **dict.fromkeys(("register_write", "register_reset", "register_read"), "PI has no registers"),
    "value_set": "PI has no value sets",
    **dict.fromkeys(("rate", "depth", "delay", "loss"), "P4Runtime has no queues and cables"),
    "advance": "its meters and queues go by the clock on the wall",
}
"""Commands that nothing on BMv2 answers to, and why."""
LEFT_OUT = {
    "check_register": "PI has no registers",
    "check_queue": "P4Runtime has no queues",
    "expect_digest": "digests are compared apart",
}
"""Checks that a script can do without: what the packets show is compared all the same."""


def limit(script: list[Command]) -> str:
    """Return why this script cannot run on BMv2; empty: it can."""
    for command in script:
        if command.word in NOT_ON_BMV2:
            return f"{command.location}: no {command.word} on BMv2: {NOT_ON_BMV2[command.word]}"
        if command.word == "wait" and command.fields["seconds"] is not None:
            return f"{command.location}: no wait for a time on BMv2: {NOT_ON_BMV2['advance']}"
    return ""


@dataclass
class Outcome:
    """Result of a script on a switch: frames by port, digests, and what its checks said."""

    frames: dict[int, list[bytes]] = field(default_factory=dict)
    digests: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    digest_names: set[str] = field(default_factory=set)
    """Digests that BMv2 tells of."""
    failures: list[str] = field(default_factory=list)


def _run(device: Any, program: Any, script: list[Command]) -> Outcome:
    run = StfRun(device, program)
    for command in script:
        if command.word not in LEFT_OUT:
            run.command(command)
    run.wait()
    return Outcome(
        {port: packets for port, packets in sorted(run.out.items()) if packets}, failures=run.report.failures
    )


def on_ours(program: CompiledProgram, script: list[Command]) -> Outcome:
    """Run the script on the embedded switch, in memory."""
    device = P4Device(1, program.name)
    try:
        device.load(program)
        out = _run(device, program, script)
        specs = {digest.preamble.id: digest for digest in program.p4info.digests}
        for digest in device.digests():
            spec = specs[digest.digest_id]
            data = p4_data(spec.type_spec, program.p4info, digest.data)
            out.digests.append((spec.preamble.name, flatten(spec.type_spec, program.p4info, data)))
        return out
    finally:
        device.close()


def on_bmv2(program: P4cProgram, script: list[Command], folder: Path) -> Outcome:
    """Run the script on simple_switch_grpc. Raises Bmv2Error when it refuses program or entries."""
    with Bmv2(folder) as switch:
        device = switch.load(program)
        device.ask_for_digests()
        outcome = _run(device, program, script)
        outcome.digest_names = device.digests_asked
        specs = {digest.preamble.id: digest for digest in device.p4info.digests}
        for number, data in device.digest_data() if outcome.digest_names else ():
            spec = specs[number]
            outcome.digests.append((spec.preamble.name, flatten(spec.type_spec, program.p4info, data)))
        return outcome
