"""User at a terminal: a program at a pty, what is typed, what is shown."""

import json
import os
import re
import select
import subprocess
import time

import pytest

from tests.repository import ROOT

PROMPT = "mininet> "
COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Terminal:
    """A program at a pty, and somebody who types and reads."""

    def __init__(self, argv, env):
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=self._own_terminal,
        )
        os.close(slave)
        self.raw = ""

    @staticmethod
    def _own_terminal():
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern, seconds=60.0):
        """Return the output up to the match of `pattern`, without colours; keep the output after it."""
        deadline = time.monotonic() + seconds
        while True:
            text = COLOUR.sub("", self.raw)
            if match := re.search(pattern, text):
                self.raw = text[match.end() :]
                return text[: match.end()]
            wait_s = deadline - time.monotonic()
            assert wait_s > 0, f"no {pattern!r} in:\n{text}"
            if select.select([self.master], [], [], min(wait_s, 1.0))[0]:
                try:
                    self.raw += os.read(self.master, 1 << 16).decode(errors="replace")
                except OSError:
                    pytest.fail(f"it ended, and no {pattern!r} in:\n{text}")

    def enter(self, line, pattern=PROMPT):
        """Type a line; return the output up to the prompt, without the line itself.

        Output from before the line comes first: a notice stands above the prompt, which is then shown again.
        """
        self.type(line + "\n")
        earlier_output = self.expect(re.escape(line) + "\n").removesuffix(line + "\n").replace(PROMPT, "")
        return earlier_output + self.expect(pattern)

    def data(self, line, says=""):
        """Type a line that answers with a JSON object; return it. Notices may stand before and after it."""
        output = self.enter(line)
        assert says in output, output
        return json.loads(re.search(r"^\{.*?^\}", output, re.DOTALL | re.MULTILINE)[0])

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        os.close(self.master)
