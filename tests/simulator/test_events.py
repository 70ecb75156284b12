"""The event queues: order, halting, taking out; both forms of each, side by side on random calls."""

import random
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from math import inf

import pytest

from mrc_testbed.files.package import PACKAGE
from mrc_testbed.simulator.events import PythonEventQueue, PythonLookaheadQueue
from mrc_testbed.switch.system.gcc import SYSTEM_DIR, build_shared
from tests.allocation_failures import results_without_memory

SOURCE = PACKAGE / "simulator" / "event_queue.c"


def module_in_c():
    import sysconfig

    library = build_shared(
        [SOURCE], [SYSTEM_DIR], [f"-I{sysconfig.get_paths()['include']}", "-fvisibility=default"], "event_queue"
    )
    loader = ExtensionFileLoader("event_queue", str(library))
    module = module_from_spec(spec_from_loader("event_queue", loader))
    loader.exec_module(module)
    return module


def queue_in_c():
    return module_in_c().EventQueue()


def lookahead_in_c(two_sided=False):
    return module_in_c().LookaheadQueue(two_sided)


FORMS = {"python": PythonEventQueue, "c": queue_in_c}
LOOKAHEAD_FORMS = {"python": PythonLookaheadQueue, "c": lookahead_in_c}


@pytest.fixture(params=FORMS)
def queue(request):
    return FORMS[request.param]()


def test_events__come_in_order_of_time_then_of_pushing(queue):
    calls = []
    for time, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (0.5, "first")):
        queue(time, lambda argument, now: calls.append((argument, now)), name)
    assert len(queue) == 4 and queue.next_at() == 0.5
    assert queue.run(1.0) is False
    assert calls == [("first", 0.5), ("a", 1.0), ("b", 1.0)]
    assert (queue.now, queue.event_count, queue.next_at()) == (1.0, 3, 2.0)
    queue.push(0.1, lambda argument, now: calls.append((argument, now)), "late")
    queue.run(inf)
    assert calls[3:] == [("late", 1.0), ("c", 2.0)]
    assert queue.next_at() == inf and not len(queue)


def test_halt__ends_the_run_after_the_event(queue):
    calls = []

    def handler(argument, now):
        calls.append(argument)
        if argument == 1:
            queue.halt()

    for number in range(4):
        queue(float(number), handler, number)
    assert queue.run(inf) is True and calls == [0, 1]
    assert queue.run(inf) is False and calls == [0, 1, 2, 3]


@pytest.mark.parametrize("form", [*FORMS.values(), *LOOKAHEAD_FORMS.values()])
def test_what_happens_alone__is_counted_as_an_event_of_its_instant(form):
    queue = form()
    node = queue.add_node(False)
    assert node.count_if_alone(1.0) and queue.count_if_alone(1.0) and queue.event_count == 2
    node(2.0, print, None)
    assert node.count_if_alone(1.0) is True and node.count_if_alone(2.0) is False and node.count_if_alone(3.0) is False
    assert queue.count_if_alone(1.0) is True and queue.count_if_alone(2.0) is False
    assert queue.event_count == 4 and len(queue) == 1
    with pytest.raises(TypeError):
        node.count_if_alone("soon")


def test_error__in_a_handler_comes_out_and_the_rest_stays(queue):
    def fail(_argument, _now):
        raise ValueError("of the handler")

    queue(1.0, fail, None)
    queue(2.0, fail, None)
    with pytest.raises(ValueError, match="of the handler"):
        queue.run(inf)
    assert len(queue) == 1 and queue.event_count == 1


def test_both_forms__do_the_same_on_random_calls():
    """Handlers push more, at the same instant too; some events are taken out."""
    logs = {}
    for name, make in FORMS.items():
        queue, rng, log = make(), random.Random(7), []

        def handler(argument, now, queue=queue, rng=rng, log=log):
            log.append((argument, now))
            for _ in range(rng.choice((0, 1, 1, 2)) if len(log) < 5000 else 0):
                queue.push(now + rng.choice((0, 0.25, rng.random())), handler, rng.randrange(1000))
            if rng.random() < 0.01:
                log.append(queue.take(lambda _handler, argument: argument % 7 == 0))
            if rng.random() < 0.05:
                queue.halt()

        for number in range(50):
            queue(rng.random(), handler, number)
        for end in range(1, 60):
            log.append((queue.run(end / 2), queue.now, queue.event_count, len(queue), queue.next_at()))
        logs[name] = log
    assert len(logs["c"]) > 1000
    assert logs["c"] == logs["python"]


@pytest.mark.parametrize("arguments", [(), (1.0, None), ("soon", print, None), (float("nan"), print, None)])
def test_c__refuses_what_is_no_event(arguments):
    with pytest.raises((TypeError, ValueError)):
        queue_in_c()(*arguments)


# ---- lookahead ----------------------------------------------------------------------------------------------


@pytest.fixture(params=LOOKAHEAD_FORMS)
def lookahead(request):
    return LOOKAHEAD_FORMS[request.param]()


def recorder(calls):
    return lambda argument, now: calls.append((argument, now))


def test_lookahead__runs_one_place_after_the_other_as_far_as_the_delay(lookahead):
    calls = []
    a, b = lookahead.add_node(False), lookahead.add_node(False)
    lookahead.note_delay(1.0)
    lookahead.note_delay(5.0)
    for time in (0.0, 0.5, 0.99, 1.0):
        a(time, recorder(calls), "a")
        b(time + 0.001, recorder(calls), "b")
    assert len(lookahead) == 8 and lookahead.next_at() == 0.0 and b.next_at() == 0.001
    assert lookahead.run(inf) is False
    assert calls == [
        ("a", 0.0),
        ("a", 0.5),
        ("a", 0.99),
        ("b", 0.001),
        ("b", 0.501),
        ("b", 0.991),
        ("a", 1.0),
        ("b", 1.001),
    ]
    assert (lookahead.now, lookahead.event_count, lookahead.next_at(), a.next_at()) == (1.001, 8, inf, inf)


def test_lookahead__has_all_places_at_the_time_of_an_event_of_none(lookahead):
    calls = []
    a, b = lookahead.add_node(False), lookahead.add_node(False)
    lookahead.note_delay(10.0)
    for time in (1.0, 2.0, 3.0):
        a(time, recorder(calls), "a")
        b(time, recorder(calls), "b")
    lookahead(2.0, recorder(calls), "all")
    lookahead.run(inf)
    assert calls == [("a", 1.0), ("b", 1.0), ("all", 2.0), ("a", 2.0), ("a", 3.0), ("b", 2.0), ("b", 3.0)]


def test_lookahead__an_event_of_no_place_asked_for_in_a_stretch_waits_for_its_end(lookahead):
    calls = []
    a, b = lookahead.add_node(False), lookahead.add_node(False)
    lookahead.note_delay(1.0)
    a(0.0, lambda _, now: lookahead.push(now, recorder(calls), "all"), None)
    b(0.25, recorder(calls), "b")
    b(1.0, recorder(calls), "b")
    lookahead.run(inf)
    assert calls == [("b", 0.25), ("all", 1.0), ("b", 1.0)]


def test_lookahead__stops_at_the_end_asked_for_and_goes_on(lookahead):
    calls = []
    node = lookahead.add_node(False)
    for time in (1.0, 2.0, 3.0):
        node(time, recorder(calls), "")
    assert lookahead.run(2.0) is False
    assert [time for _, time in calls] == [1.0, 2.0] and lookahead.next_at() == 3.0
    node.push(0.0, recorder(calls), "late")
    lookahead.run(inf)
    assert calls[2:] == [("late", 2.0), ("", 3.0)]


def test_lookahead__halts_at_the_end_of_the_stretch(lookahead):
    calls = []
    a, b = lookahead.add_node(False), lookahead.add_node(False)
    lookahead.note_delay(1.0)
    a(0.5, lambda _, now: lookahead.halt(), None)
    b(0.75, recorder(calls), "before the end")
    b(2.0, recorder(calls), "after it")
    assert lookahead.run(inf) is True
    assert calls == [("before the end", 0.75)] and lookahead.now == 0.75
    assert lookahead.run(inf) is False and len(calls) == 2


def test_lookahead__refuses_what_is_in_the_past_of_a_place(lookahead):
    a, b = lookahead.add_node(False), lookahead.add_node(False)
    lookahead.note_delay(1.0)
    for time in (0.1, 0.9):
        a(time, recorder([]), None)
    b(0.2, lambda _, now: a(now + 0.1, recorder([]), None), None)  # sooner than the delay
    b(0.3, recorder([]), None)
    with pytest.raises(RuntimeError, match="in the past of its node"):
        lookahead.run(inf)
    assert len(lookahead) == 1 and lookahead.next_at() == 0.3, "the rest stays"


def test_lookahead__goes_on_after_an_error_in_a_handler(lookahead):
    calls = []

    def fail(_argument, _now):
        raise ValueError("of the handler")

    a, b = lookahead.add_node(False), lookahead.add_node(False)
    lookahead.note_delay(10.0)
    a(1.0, fail, None)
    a(2.0, recorder(calls), "a")
    b(1.5, recorder(calls), "b")
    with pytest.raises(ValueError, match="of the handler"):
        lookahead.run(inf)
    lookahead.run(inf)
    assert sorted(calls) == [("a", 2.0), ("b", 1.5)] and lookahead.event_count == 3


class Exchange:
    """Nodes that send one another events, `delay` or more later, and take some out again.

    `two_sided`: nodes with odd numbers send to those with even ones, and these to them.
    """

    def __init__(self, queue, node_count, delay, seed, two_sided=False):
        self.queue, self.delay, self.two_sided = queue, delay, two_sided
        self.nodes = [queue.add_node(number % 2 == 1) for number in range(node_count)]
        for node in self.nodes:
            node.keep_near(self.nodes, True)
        queue.note_delay(delay)
        self.rngs = [random.Random(f"{seed}/{number}") for number in range(node_count)]
        self.logs = [[] for _ in range(node_count)]
        self.observations = []
        for number, node in enumerate(self.nodes):
            for _ in range(20):
                node(self.rngs[number].random(), self.handle, number)
        queue(1.0, self.observe, None)

    def handle(self, number, now):
        rng = self.rngs[number]
        self.logs[number].append(now)
        if now > 6.0:
            return
        for _ in range(rng.choice((0, 1, 1, 2))):
            target = rng.randrange(len(self.nodes))
            if self.two_sided and target != number and (target - number) % 2 == 0:
                target = (target + 1) % len(self.nodes)
            delay = rng.random() * 0.1 if target == number else self.delay + rng.random()
            self.nodes[target](now + delay, self.handle, target)
        if rng.random() < 0.05:
            self.queue.halt()

    def observe(self, _argument, now):
        arguments = self.queue.take(lambda _handler, argument: argument == 3)
        self.observations.append((now, [len(log) for log in self.logs], arguments, len(self.queue)))
        self.nodes[0].push(now, self.handle, 0)
        self.queue.push(now + 0.75, self.observe, None)

    def run(self):
        while self.queue.run(8.0):
            pass
        return self.logs, self.observations, self.queue.event_count


def test_lookahead__has_the_events_of_a_turn_in_order_however_they_lie(lookahead):
    rng, calls = random.Random(3), []
    lookahead.note_delay(1.0)
    node = lookahead.add_node(False)

    def handle(argument, now):
        calls.append((now, argument))
        if argument < 400:  # some at once, some in this turn, some in a later one
            node(now + rng.choice((0.0, 1e-9, 0.3, 2.0)), handle, argument + 1000)

    times = [rng.choice((0.0, 0.5, rng.random(), 1e-300 * rng.random(), 3 * rng.random())) for _ in range(500)]
    for number, time in enumerate(times):
        node(time, handle, number)
    lookahead.run(inf)
    assert [now for now, _ in calls] == sorted(now for now, _ in calls) and len(calls) == 900
    firsts = [argument for _, argument in calls if argument < 1000]
    assert firsts == sorted(range(500), key=lambda number: times[number])


def test_lookahead__takes_events_out_during_the_turn_they_are_due_in(lookahead):
    calls = []
    lookahead.note_delay(1.0)
    node, neighbour = lookahead.add_node(False), lookahead.add_node(False)

    def handle(argument, now):
        calls.append(argument)
        if argument == 1:
            assert lookahead.take(lambda _handler, argument: argument % 2 == 0) == [2, 4, 6, 8]
            assert len(lookahead) == 4 and node.next_at() == 0.3

    for number in (5, 4, 3, 2, 1):
        node(number / 10, handle, number)
    for number in (6, 7, 8, 9):
        (node if number < 8 else neighbour)(float(number), handle, number)
    lookahead.run(inf)
    assert calls == [1, 3, 5, 7, 9] and not len(lookahead)


def test_c__an_event_pushed_while_events_of_a_turn_are_taken_out_is_refused_and_none_is_lost():
    lookahead, calls, errors = lookahead_in_c(), [], []
    lookahead.note_delay(1.0)
    node = lookahead.add_node(False)

    def push(_handler, _argument):
        node(0.5, handle, "pushed")
        return False

    def handle(argument, _now):
        calls.append(argument)
        if argument == "first":
            with pytest.raises(RuntimeError, match="while events are taken out") as error:
                lookahead.take(push)
            errors.append(error)

    for time, name in ((0.1, "first"), (0.2, "second"), (5.0, "third")):
        node(time, handle, name)
    lookahead.run(inf)
    assert errors and [name for name in calls if name != "pushed"] == ["first", "second", "third"]


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.7])
def test_lookahead__has_the_events_of_the_exact_order_at_each_place(delay):
    exact = Exchange(PythonEventQueue(), 6, delay, delay).run()
    assert sum(map(len, exact[0])) > 500
    for make in LOOKAHEAD_FORMS.values():
        assert Exchange(make(), 6, delay, delay).run() == exact


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.7])
def test_two_delays__have_the_events_of_the_exact_order_at_each_place(delay):
    exact = Exchange(PythonEventQueue(), 6, delay, delay, two_sided=True).run()
    assert sum(map(len, exact[0])) > 500
    for make in LOOKAHEAD_FORMS.values():
        assert Exchange(make(True), 6, delay, delay, two_sided=True).run() == exact


@pytest.mark.parametrize("form", LOOKAHEAD_FORMS)
def test_two_delays__each_side_runs_to_a_delay_beyond_the_other(form):
    calls = []
    queue = LOOKAHEAD_FORMS[form](True)
    host, switch = queue.add_node(False), queue.add_node(True)
    queue.note_delay(1.0)
    for time in (0.0, 0.9, 1.1, 1.4, 1.6, 2.6):
        host(time, recorder(calls), "host")
    for time in (0.5, 1.7, 2.9):
        switch(time, recorder(calls), "switch")
    queue.run(inf)
    assert calls == [
        ("host", 0.0),
        ("host", 0.9),
        ("host", 1.1),
        ("host", 1.4),  # the switch has something at 0.5
        ("switch", 0.5),
        ("switch", 1.7),  # the host at 1.6, and 2.5 is two delays
        ("host", 1.6),
        ("host", 2.6),
        ("switch", 2.9),
    ]


def test_lookahead__an_abandoned_queue_is_freed():
    import gc
    import weakref

    class Owner:
        pass

    for make in LOOKAHEAD_FORMS.values():
        owner = Owner()
        owner.queue = make()
        owner.node = owner.queue.add_node(False)
        owner.node(1.0, print, owner)
        owner.node.keep_near([owner], False)
        owner.queue(1.0, print, owner)
        reference = weakref.ref(owner)
        del owner
        gc.collect()
        assert reference() is None


def test_c__parts_are_of_an_object_and_a_name():
    queue = lookahead_in_c()
    with pytest.raises(TypeError, match="an object and a name"):
        queue.note_part(queue)
    with pytest.raises(AttributeError):
        queue.note_part(queue, "nothing")
    assert not queue.note_part(7, "real"), "its value is the object itself, which it does not keep"


def test_c__a_place_comes_from_its_queue_alone():
    node_type = type(lookahead_in_c().add_node(False))
    with pytest.raises(TypeError):
        node_type()


@pytest.mark.parametrize("arguments", [(), (1.0, None), ("soon", print, None), (float("nan"), print, None)])
def test_c__a_place_refuses_what_is_no_event(arguments):
    with pytest.raises((TypeError, ValueError)):
        lookahead_in_c().add_node(False)(*arguments)


def test_c__a_place_refuses_names_and_what_is_no_sequence():
    node = lookahead_in_c().add_node(False)
    with pytest.raises(TypeError, match="by name"):
        node(1.0, print, argument=None)
    with pytest.raises(TypeError):
        node.keep_near(7, False)


@pytest.mark.parametrize("make", [queue_in_c, lookahead_in_c], ids=["queue", "lookahead"])
def test_c__an_allocation_that_fails_is_a_memory_error_and_the_queue_goes_on(make):
    queue = make()
    events = []

    def handler(argument, _now):
        events.append(argument)

    node = queue.add_node(0) if make is lookahead_in_c else queue
    accepted_count = 0
    for number in range(40):  # the room of a queue doubles: some of these calls allocate, others do not
        for result in results_without_memory(lambda number=number: node(float(number), handler, number), 4):
            accepted_count += result is not MemoryError
    queue.run(inf)
    assert len(events) == accepted_count >= 120


@pytest.mark.parametrize("make", [queue_in_c, lookahead_in_c], ids=["queue", "lookahead"])
def test_c__an_allocation_that_fails_in_a_run_loses_the_event_at_hand_alone(make):
    """The error comes out of run(), as one of a handler does; another run goes on with all that is left."""
    handled_numbers, current = [], []

    def fill():
        queue = make()
        if make is lookahead_in_c:
            queue.note_delay(2.0)
        nodes = [queue.add_node(0) for _ in range(40)]  # more than a heap has room for at first
        for number, node in enumerate(nodes):
            node.push(float(number % 7), note, number)
        current[:] = queue, nodes

    def note(argument, now):
        handled_numbers.append(argument)
        if argument < 40:
            current[1][argument * 3 % 40].push(now + 2.0, note, argument + 100)

    fill()
    for result in results_without_memory(lambda: current[0].run(inf)):
        current[0].run(inf)
        assert len(set(handled_numbers)) == len(handled_numbers) and len(current[0]) == 0
        lost_count = 80 - len(handled_numbers)
        assert lost_count <= 2 * (result is MemoryError)  # the event, and the one that it would have brought
        handled_numbers.clear()
        fill()


@pytest.mark.parametrize("make", [queue_in_c, lookahead_in_c], ids=["queue", "lookahead"])
def test_c__an_allocation_that_fails_elsewhere_leaves_the_queue_as_it_was(make):
    queue = make()
    node = queue.add_node(0)
    arguments = []
    for number in range(3):
        node.push(float(number), lambda argument, _now: arguments.append(argument), number)
    calls = {
        "make": type(queue),
        "add_node": lambda: queue.add_node(0),
        "next_at": queue.next_at,
        "of a place": node.next_at,
        "keep_near": lambda: node.keep_near([arguments, queue], True),
        "refusing": lambda: queue.take(lambda *_: False),
        "counts": lambda: (queue.event_count, queue.now, len(queue)),
    }
    for name, call in calls.items():
        results = list(results_without_memory(call))
        assert results[-1] is not MemoryError, name
        assert (queue.next_at(), len(queue)) == (0.0, 3), name
    for result in results_without_memory(lambda: queue.take(lambda *_: True)):
        assert result is MemoryError or result in ([0, 1, 2], []), "what was taken out is gone"
        assert len(queue) == 0 or result is MemoryError
    queue.run(inf)
    assert arguments == [] and len(queue) == 0
