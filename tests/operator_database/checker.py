"""Checks operators one after another: a child process of the runner.

Reads tasks from standard input, one JSON object a line:
  {"operator": INDEX, "dtype": NAME, "limit": SAMPLES or null, "skip": [[V, S]...]}
Before each sample of a variant it writes {"at": [VARIANT, SAMPLE]} to the
descriptor that it was given, after the last one {"done": {VARIANT: {...}}}. So the
runner knows which one a hang or a crash belongs to, and names it in `skip` when it
asks again.
"""

import json
import os
import sys
import traceback
import warnings

import torch
from torch.testing._internal import common_methods_invocations

import djinn
from tests.operator_database import comparison
from tests.operator_database import variants
from tests.operator_database.child import EXIT_WORKER_LOST
from tests.operator_database.mirror import Mirror

_LOST = ("is lost", "SESSION_LOST", "WORKER_LOST")


class Checker:
    def __init__(self, device, send):
        self._device = device
        self._send = send

    def check(self, task):
        """Runs all samples of an operator and dtype in all its variants."""
        op = common_methods_invocations.op_db[task["operator"]]
        dtype = getattr(torch, task["dtype"])
        skip = {tuple(entry) for entry in task["skip"]}
        names = variants.variants_of(op, dtype)
        outcomes = {name: _new_outcome() for name in names}
        torch.manual_seed(0)
        samples = op.sample_inputs("cpu", dtype, requires_grad="backward" in names)
        for index, sample in enumerate(samples):
            if task["limit"] is not None and index >= task["limit"]:
                break
            # The random numbers of the next sample must not depend on how often
            # this sample runs.
            state = torch.get_rng_state()
            case = variants.Case(op, sample)
            for name in names:
                if (name, index) not in skip:
                    self._send({"at": [name, index]})
                    self._check_sample(name, case, index, outcomes[name])
            torch.set_rng_state(state)
        return outcomes

    def _check_sample(self, name, case, index, outcome):
        reference = Mirror("cpu")
        try:
            expected = case.run(name, reference)
        except Exception:  # pylint: disable=broad-except
            return  # not counted: the CPU does not pass it
        outcome["samples"] += 1
        before = djinn.synchronous_calls()
        failure = self._compare(name, case, expected, reference)
        _add_difference(outcome["synchronous"], before, djinn.synchronous_calls())
        if failure is None:
            outcome["equal"] += 1
            return
        kind, message = failure
        outcome["failures"].append(
            {"sample": index, "kind": kind, "message": message[:600]}
        )
        if any(text in message for text in _LOST):
            # A new process with a new cluster continues after this sample.
            os._exit(EXIT_WORKER_LOST)

    def _compare(self, name, case, expected, reference):
        mirror = Mirror(self._device)
        try:
            actual = case.run(name, mirror)
            try:
                comparison.compare(
                    expected, actual, values=variants.has_values(case.op)
                )
            except comparison.Mismatch as mismatch:
                if mismatch.kind == "value" and self._varies(
                    name, case, expected
                ):
                    return None
                raise
            comparison.compare_aliases(
                expected, reference.storages(), actual, mirror.storages()
            )
        except comparison.Mismatch as mismatch:
            return mismatch.kind, str(mismatch)
        except Exception as error:  # pylint: disable=broad-except
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
            return "error", f"{type(error).__name__}: {error} ({place})"
        return None

    @staticmethod
    def _varies(name, case, expected):
        """Whether the CPU does not repeat its own values either."""
        again = case.run(name, Mirror("cpu"))
        try:
            comparison.compare(expected, again)
        except comparison.Mismatch:
            return True
        return False


def _new_outcome():
    return {"samples": 0, "equal": 0, "failures": [], "synchronous": {}}


def _add_difference(total, before, after):
    for name, count in after.items():
        added = count - before.get(name, 0)
        if added:
            total[name] = total.get(name, 0) + added


def main():
    descriptor = int(sys.argv[1])
    results = os.fdopen(descriptor, "w", buffering=1)

    def send(message):
        results.write(json.dumps(message) + "\n")

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # A sample that kills its worker is a finding.
    os.environ["DJINN_RECOVERY"] = "off"
    with djinn.local(worker_threads=1):
        checker = Checker("remote_accelerator:0", send)
        send({"ready": True})
        for line in sys.stdin:
            send({"done": checker.check(json.loads(line))})


if __name__ == "__main__":
    main()
