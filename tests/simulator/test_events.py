"""The event queue: order, halting, taking out; both forms of it, side by side on random calls."""

import random
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from math import inf
from pathlib import Path

import pytest

from simulator.events import PythonEventQueue
from switch.build import build_shared

SOURCE = Path(__file__).resolve().parents[2] / "simulator" / "event_queue.c"


def queue_in_c():
    import sysconfig

    library = build_shared(
        [SOURCE], [], [f"-I{sysconfig.get_paths()['include']}", "-fvisibility=default"], "event_queue"
    )
    loader = ExtensionFileLoader("event_queue", str(library))
    module = module_from_spec(spec_from_loader("event_queue", loader))
    loader.exec_module(module)
    return module.EventQueue()


FORMS = {"python": PythonEventQueue, "c": queue_in_c}


@pytest.fixture(params=FORMS)
def queue(request):
    return FORMS[request.param]()


def test_events__come_in_order_of_time_then_of_pushing(queue):
    told = []
    for at, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (0.5, "first")):
        queue.add(at, lambda argument, now: told.append((argument, now)), name)
    assert len(queue) == 4 and queue.next_at() == 0.5
    assert queue.run(1.0) is False
    assert told == [("first", 0.5), ("a", 1.0), ("b", 1.0)]
    assert (queue.now, queue.done, queue.next_at()) == (1.0, 3, 2.0)
    queue.push(0.1, lambda argument, now: told.append((argument, now)), "late")
    queue.run(inf)
    assert told[3:] == [("late", 1.0), ("c", 2.0)]
    assert queue.next_at() == inf and not len(queue)


def test_halt__ends_the_run_after_the_event(queue):
    told = []

    def handler(argument, now):
        told.append(argument)
        if argument == 1:
            queue.halt()

    for number in range(4):
        queue.add(float(number), handler, number)
    assert queue.run(inf) is True and told == [0, 1]
    assert queue.run(inf) is False and told == [0, 1, 2, 3]


def test_error__in_a_handler_comes_out_and_the_rest_stays(queue):
    def fail(_argument, _now):
        raise ValueError("of the handler")

    queue.add(1.0, fail, None)
    queue.add(2.0, fail, None)
    with pytest.raises(ValueError, match="of the handler"):
        queue.run(inf)
    assert len(queue) == 1 and queue.done == 1


def test_both_forms__do_the_same_on_random_calls():
    """Handlers push more, at the same instant too; some events are taken out."""
    told = {}
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
            queue.add(rng.random(), handler, number)
        for end in range(1, 60):
            log.append((queue.run(end / 2), queue.now, queue.done, len(queue), queue.next_at()))
        told[name] = log
    assert len(told["c"]) > 1000
    assert told["c"] == told["python"]


@pytest.mark.parametrize("arguments", [(), (1.0, None), ("soon", print, None), (float("nan"), print, None)])
def test_c__refuses_what_is_no_event(arguments):
    with pytest.raises((TypeError, ValueError)):
        queue_in_c().add(*arguments)
