"""A fabric in two processes has the events of one, with faults, in each mode.

Jitter keeps packets of different senders from arriving at one instant; for those the orders may differ.
"""

import os
import time
from collections import Counter
from mmap import mmap
from multiprocessing import get_context
from operator import eq
from random import Random

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator import Flow, VirtualFabric, run_all, scaled_profiles
from mrc_testbed.simulator.halves import SHARED_BYTES, LostHalfError, PipeChannel, SplitError, run_in_halves
from mrc_testbed.simulator.profiles import PfcProfile, ProfileError
from mrc_testbed.simulator.switches import MODES
from mrc_testbed.topologies.plan import Plan
from tests.simulator.test_events import module_in_c
from tests.simulator.test_fabric_lookahead import PLAN, TracedFabric, busy_fabric

BETWEEN_HALVES = ("h0", "h3")


def results_of(traced_fabric):
    """Return the packet events at each place, and all counters, over both halves where there are two."""
    events, _ = traced_fabric.run()
    fabric = traced_fabric.fabric
    packet_events, counters = Counter(), Counter()
    for half_events in fabric.gather(events):
        packet_events += Counter(
            (location, *event) for location, at_location in half_events.items() for event in at_location
        )
    for half_counters in fabric.gather(fabric.totals()):
        counters += Counter(half_counters)
    qps = {
        (name, qp.qpn): qp.counters.by_name()
        for name, host in fabric.hosts.items()
        if fabric.owns(name)
        for qp in host.endpoint._qps.values()
    }
    return packet_events, counters, [counts for half_qps in fabric.gather(qps) for counts in half_qps.items()]


def busy_half(half, lookahead, mode):
    traced_fabric, _ = busy_fabric(lookahead, mode=mode, half=half)
    return results_of(traced_fabric)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lookahead", [1, 2])
def test_halves__have_the_events_of_one_process(mode, lookahead):
    packet_events, counters, qps = run_in_halves(busy_half, lookahead, mode)
    all_packet_events, all_counters, all_qps = busy_half(None, lookahead, mode)
    assert packet_events.total() > 2000 and packet_events == all_packet_events
    assert (counters, dict(qps)) == (all_counters, dict(all_qps))


def baseline_half(half):
    traced_fabric = TracedFabric(1, mode="flow-ecmp", half=half)
    settings = RcConfig(control="dcqcn", timeout=14)
    for a, b in (BETWEEN_HALVES, BETWEEN_HALVES[::-1]):
        Flow(traced_fabric.fabric, a, b, messages=6, transport="rocev2", settings=settings)
    return results_of(traced_fabric)


def test_baseline__crosses_too():
    assert run_in_halves(baseline_half)[:2] == baseline_half(None)[:2]


def checked_half(half, has_damage):
    """Run a flow over the border whose receiver expects other bytes, or the right ones."""
    fabric = TracedFabric(1, half=half).fabric
    flow = Flow(fabric, *BETWEEN_HALVES, message_bytes=40_000, messages=5)
    if has_damage and fabric.owns(flow.b):
        flow.memory.text = flow.memory.text[1:]
    is_over = run_all(fabric, [flow])
    return is_over, flow.completed, flow.corrupt, all(fabric.gather(flow.intact))


def test_memory__of_the_other_half_is_checked_at_each_completion():
    assert run_in_halves(checked_half, False) == (True, 5, [], True)
    is_over, completed, corrupt, _ = run_in_halves(checked_half, True)
    assert is_over and completed == 5 and corrupt == [0, 1, 2, 3, 4]


def end_early(half, number, action):
    fabric = TracedFabric(1, half=half).fabric
    if half.number == number:
        fabric.host(BETWEEN_HALVES[number]).schedule(0.01, action)
    Flow(fabric, *BETWEEN_HALVES, messages=100)
    fabric.run_until(0.1)


def fail():
    raise KeyError("a mistake")


def test_half__that_dies_is_an_error_with_its_exit_code():
    with pytest.raises(LostHalfError, match=r"exit code 7: .* Cure: free memory"):
        run_in_halves(end_early, 1, lambda: os._exit(7))


@pytest.mark.parametrize("number", [0, 1])
def test_half__that_fails_has_its_error_raised(number, capfd):
    with pytest.raises(KeyError, match="a mistake") as error:
        run_in_halves(end_early, number, fail)
    assert ("in fail" in str(error.value.__cause__)) == bool(number), "half 1 shows where"
    assert capfd.readouterr().err == "", "the error is shown once, by who asked for the run"


def refuse(half):
    raise UsageError("no such run")


def test_error_of_both_halves__is_raised_once(capfd):
    with pytest.raises(UsageError, match=r"^no such run$"):
        run_in_halves(refuse)
    assert capfd.readouterr().err == ""


def differ(half):
    fabric = TracedFabric(1, half=half).fabric
    fabric.schedule(0.01 + 0.01 * half.number, lambda: None)
    fabric.run_until(0.1)


def gather_alone(half):
    fabric = TracedFabric(1, half=half).fabric
    if half.number:
        fabric.gather(1)
    fabric.run_until(0.1)


def test_halves__that_do_not_do_the_same_are_an_error():
    with pytest.raises(SplitError, match="differ in what happens next"):
        run_in_halves(differ)
    with pytest.raises(SplitError, match="differ in what they do next"):
        run_in_halves(gather_alone)


def make_fabric(half, plan, options):
    VirtualFabric(plan, half=half, **options)


@pytest.mark.parametrize(
    ("plan", "options", "reason"),
    [
        (Plan(2, 1, 2, 3), {"lookahead": 1}, "one rack has no halves"),
        (PLAN, {"lookahead": 1, "wire": True}, "bytes has no halves"),
        (PLAN, {"lookahead": 1, "pauses": True}, r"pauses \(PFC\) has no halves"),
        (PLAN, {"lookahead": 0}, "exact order has no halves"),
    ],
)
def test_fabric__without_halves_is_refused(plan, options, reason):
    options = dict(options)
    if options.pop("pauses", False):
        pfc = PfcProfile(xoff_bytes=9000, xon_bytes=3000, headroom_bytes=9000, storm_after_s=0.2)
        options["queues"] = scaled_profiles(2, ecn=False, trim=False, queues={"pfc": pfc}).queues
    with pytest.raises((ProfileError, RuntimeError), match=reason):
        run_in_halves(make_fabric, plan, options)


LONG_BYTES = 3 << 20
"""Length of a message that is longer than the memory between two halves."""


def pipe_channel(number, pipe, _memory):
    return PipeChannel(number, pipe)


def channel_in_c(number, pipe, memory, look_s=0.001):
    return module_in_c().Channel(memory, number, pipe.fileno(), look_s)


def sleeping_channel(number, pipe, memory):
    return channel_in_c(number, pipe, memory, 0.0)


@pytest.fixture(params=[pipe_channel, channel_in_c, sleeping_channel])
def channel_and_other(request):
    """A channel, and a function that starts another process with the other end: `action(channel)`."""
    context = get_context("fork")
    pipe, other_pipe = context.Pipe()
    memory = mmap(-1, SHARED_BYTES)
    processes = []

    def act(action):
        pipe.close()
        action(request.param(1, other_pipe, memory))
        os._exit(0)

    def start(action):
        processes.append(context.Process(target=act, args=(action,), daemon=True))
        processes[0].start()
        other_pipe.close()

    yield request.param(0, pipe, memory), start
    processes[0].kill()
    processes[0].join()


def messages(number):
    """Return 300 messages of one half, three of them longer than the memory."""
    random = Random(number)
    lengths = [random.choice([1, 100, 7000, random.randrange(1, 100_000), 16360 * 3]) for _ in range(300)]
    for index in (100, 101, 200 + number):
        lengths[index] = LONG_BYTES + index
    return [random.randbytes(length) for length in lengths]


def test_channel__exchanges_messages_of_any_length(channel_and_other):
    def exchange_all(channel):
        for message, answer in zip(messages(1), messages(0), strict=True):
            if len(message) == 100:
                time.sleep(0.001)  # so that the other half sleeps
            assert channel.exchange(message) == answer

    channel, start = channel_and_other
    start(exchange_all)
    assert all(map(eq, messages(1), map(channel.exchange, messages(0))))


@pytest.mark.parametrize("length", [1, LONG_BYTES])
def test_channel__of_a_half_that_has_ended_is_an_error(channel_and_other, length):
    channel, start = channel_and_other
    start(lambda channel: channel.exchange(b"last"))
    assert channel.exchange(b"first") == b"last"
    with pytest.raises((EOFError, OSError)):
        channel.exchange(b"x" * length)


def test_channel__in_c_refuses_what_it_cannot_send():
    memory = mmap(-1, SHARED_BYTES)
    channel = module_in_c().Channel(memory, 0, -1, 0.0)
    for message in (b"", "text", bytearray(b"x"), None):
        with pytest.raises(TypeError, match="takes bytes"):
            channel.exchange(message)
    with pytest.raises(ValueError, match=r"a channel needs 10.* bytes"):
        module_in_c().Channel(mmap(-1, 4096), 0, -1, 0.0)
