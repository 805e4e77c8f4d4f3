"""Calls of Hugging Face's models under djinn.compile(): the first, the third and later ones."""

import statistics
import time

import torch
import transformers

import djinn
from tests.bench.python.report import Row, seconds
from tests.hugging_face import families, models

WARM_CALLS = 20
# The evaluations of each guard.
EVALUATIONS = 200


class _Guards:
    """Measures the guards of each frame that Dynamo compiles, within the block."""

    def __enter__(self):
        from torch._dynamo import guards

        self.seconds = []
        self._profile = guards.profile_guard_manager
        guards.profile_guard_manager = self._measure
        return self

    def __exit__(self, *raised):
        from torch._dynamo import guards

        guards.profile_guard_manager = self._profile

    def _measure(self, root, scope, count):
        spent = []
        for _ in range(EVALUATIONS):
            begin = time.perf_counter()
            assert root.check(scope), "the guards refuse the call that they were made for"
            spent.append(time.perf_counter() - begin)
        self.seconds.append(statistics.median(spent))
        return self._profile(root, scope, count)


def measure(device, local_device, rounds):
    """Returns one row; its rounds are the families, each with the median of its warm calls."""
    del rounds
    transformers.logging.set_verbosity_error()
    row = Row("python_families", f"{len(families.FAMILIES)} small models, a warm call")
    first, guards, later = {}, {}, []
    with torch.no_grad():
        for family in families.FAMILIES:
            torch._dynamo.reset()
            local = models.build(family).to(local_device)
            remote = djinn.compile(models.build(family).to(device))
            here = {name: one.to(local_device) for name, one in family.inputs().items()}
            there = {name: one.to(device) for name, one in here.items()}
            torch.manual_seed(5)
            with _Guards() as measured:
                for call in range(1, 4):
                    expected = models.tensors(local(**here))
                    replays = remote.statistics()["replays"]
                    spent, actual = _timed(remote, there)
                    if call == 1:
                        first[family.name] = spent
                    _check(row, family.name, actual, expected)
            if remote.statistics()["replays"] != replays + 1:
                later.append(family.name)
            # A frame that is compiled again has newer guards; the sum is an upper bound.
            guards[family.name] = sum(measured.seconds)
            row.djinn.append(statistics.median(_timed(remote, there)[0] for _ in range(WARM_CALLS)))
            row.local.append(statistics.median(_timed(local, here)[0] for _ in range(WARM_CALLS)))
    row.checked = "every output equal"
    count = len(families.FAMILIES)
    row.notes.append(f"replayed on the third call: {count - len(later)} of {count}"
                     + (f"; later: {', '.join(later)}" if later else ""))
    row.notes.append(f"guards: {_describe(guards)}")
    row.notes.append(f"first call: {_describe(first)}")
    return [row]


def _timed(model, inputs):
    begin = time.perf_counter()
    outputs = [one.cpu() for one in models.tensors(model(**inputs))]
    return time.perf_counter() - begin, outputs


def _check(row, name, actual, expected):
    same = len(actual) == len(expected) and all(map(torch.equal, actual, expected))
    if not same and not row.error:
        row.error = f"{name} has other outputs"


def _describe(spent):
    slowest = max(spent, key=spent.get)
    return (f"median {seconds(statistics.median(spent.values()))}, "
            f"at most {seconds(spent[slowest])} ({slowest})")
