"""Links of tests: when they can be used."""

import subprocess
import time
from collections.abc import Callable

WAIT_S = 30.0


def wait_until_up(*names: str) -> None:
    """Wait until the kernel sends by these interfaces.

    It connects the queue of a new one by a job in the background, some time after `ip link set up` has returned; what
    is sent before is dropped without a word (1 of 40 first frames on a busy machine).
    """
    end = time.monotonic() + WAIT_S
    for name in names:
        while True:
            output = subprocess.run(
                ["ip", "-o", "link", "show", "dev", name], check=True, capture_output=True, text=True
            ).stdout
            if " state UP " in output and " qdisc noop " not in output:
                break
            assert time.monotonic() < end, f"{name} does not come up: {output}"
            time.sleep(0.002)


def wait_until(holds: Callable[[], bool], description: str) -> None:
    """Wait until `holds()`; fails with `description` after WAIT_S."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"never: {description}"
        time.sleep(0.002)
