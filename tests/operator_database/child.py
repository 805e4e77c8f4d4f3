"""Child processes that check operators, started again where one does not survive."""

import json
import os
import selectors
import subprocess
import sys
import time

# A checker's exit status when its worker is gone.
EXIT_WORKER_LOST = 3

# Time to start a cluster and to import PyTorch's database.
_START_SECONDS = 180
# After this many deaths in one task, the rest of the task is given up.
_MOST_DEATHS = 20


class ChildLost(Exception):
    """The child hung or died."""


class Child:
    """Runs one task after another, and always gives an answer."""

    def __init__(
        self,
        command=(sys.executable, "-m", "tests.operator_database.checker"),
        sample_seconds=60,
    ):
        """A sample that takes longer is taken to hang; the slowest take seconds."""
        self._command = list(command)
        self._sample_seconds = sample_seconds
        self._process = None
        self._results = None
        self._buffer = b""

    def run(self, task):
        """The outcomes of a task by variant, with deaths among the failures."""
        skip, deaths = [], []
        while True:
            at = None
            try:
                self._ensure_started()
                self._write(dict(task, skip=skip))
                while True:
                    message = self._read(self._sample_seconds)
                    if "done" in message:
                        return _with_deaths(message["done"], deaths)
                    at = message.get("at", at)
            except ChildLost as error:
                self.stop()
                if at is None or len(deaths) >= _MOST_DEATHS:
                    deaths.append((["forward", -1], f"given up: {error}"))
                    return _with_deaths({}, deaths)
                skip.append(at)
                deaths.append((at, str(error)))

    def stop(self):
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        os.close(self._results)
        self._process.stdin.close()
        self._process = None

    def _ensure_started(self):
        if self._process is not None:
            return
        self._results, theirs = os.pipe()
        self._buffer = b""
        self._process = subprocess.Popen(
            self._command + [str(theirs)], stdin=subprocess.PIPE, pass_fds=[theirs]
        )
        os.close(theirs)
        if "ready" not in self._read(_START_SECONDS):
            raise ChildLost("did not start as expected")

    def _write(self, task):
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildLost(self._end()) from None

    def _read(self, seconds):
        """The next message."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._results, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise ChildLost(f"hung for {seconds} s")
                piece = os.read(self._results, 1 << 16)
                if not piece:
                    raise ChildLost(self._end())
                self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def _end(self):
        try:
            status = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if status == EXIT_WORKER_LOST:
            return "the worker was lost"
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _with_deaths(outcomes, deaths):
    for (variant, sample), message in deaths:
        outcome = outcomes.setdefault(
            variant, {"samples": 0, "equal": 0, "failures": [], "synchronous": {}}
        )
        outcome["samples"] += 1
        outcome["failures"].append(
            {"sample": sample, "kind": "death", "message": message}
        )
    return outcomes
