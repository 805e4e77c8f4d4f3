"""Checks Djinn on a device and times it beside PyTorch on the same device.

    python3 -m tests.gpu.main [--device cuda:0] [--json FILE] [--small] [--rounds N]
                              [--random N] [--limit SECONDS]

Prints a table and writes JSON. Ends with status 1 if a result was wrong.
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import sys
import time

import torch

import djinn
from tests.gpu import workloads
from tests.gpu.local_process import LocalProcess

# Tolerances by dtype, relative to the largest value, because kernels may sum in
# any order.
TOLERANCES = {torch.float16: 2e-2, torch.bfloat16: 2e-2}
TOLERANCE = 1e-3
FAMILIES = ("bert", "gpt2", "llama", "t5", "vit", "resnet", "clip", "whisper")


def _difference(actual, expected, exact):
    """Returns what is wrong with the values, or an empty string."""
    if len(actual) != len(expected):
        return f"{len(actual)} values, not {len(expected)}"
    for one, other in zip(actual, expected):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
        tolerance = 0 if exact else TOLERANCES.get(other.dtype, TOLERANCE)
        if not other.dtype.is_floating_point:
            tolerance = 0
        scale = max(1.0, other.double().abs().max().item()) if other.numel() else 1.0
        if not torch.allclose(one.double(), other.double(), rtol=0, atol=tolerance * scale,
                              equal_nan=True):
            return f"differs by {(one.double() - other.double()).abs().max().item():.3g}"
    return ""


class Run:
    def __init__(self, options):
        self.options = options
        self.exact = options.device == "cpu"
        self.began = time.monotonic()
        self.checks, self.rows = [], []
        sizes = workloads.SMALL if options.small else workloads.FULL
        self.sizes = sizes
        self.local = LocalProcess(options.device, options.small, options.threads)
        self.remote = workloads.Runner(djinn.device(), sizes, djinn.compile)

    def late(self):
        return time.monotonic() - self.began > self.options.limit

    def check(self, method, argument):
        try:
            actual = getattr(self.remote, method)(argument)
            error = _difference(actual, self.local.call(method, argument), self.exact)
        except Exception as raised:  # noqa: BLE001  (one check of several)
            error = f"{type(raised).__name__}: {raised}"[:300]
        self.checks.append({"check": method, "argument": argument, "error": error})
        if error:
            print(f"gpu: {method} {argument}: {error}", file=sys.stderr, flush=True)

    def check_all(self):
        for name in workloads.PROGRAMS:
            self.check("program", name)
        if importlib.util.find_spec("transformers"):
            for name in FAMILIES:
                self.check("model", name)
        for seed in range(self.options.random):
            if self.late():
                break
            self.check("random", seed)
        if errors := djinn.root_errors():
            self.checks.append({"check": "root errors", "argument": "", "error": str(errors[0])})

    def measure_all(self):
        graph = self.options.device != "cpu"
        for name, how, graphed in (
                ("encoder", "plain", True), ("encoder", "registered", True),
                ("decoder, by cat", "plain", False), ("decoder, static cache", "plain", True),
                ("decoder, static cache", "registered", True),
                ("training step", "plain", True), ("training step", "registered", True)):
            self.measure(name, how, graphed and graph)
        for mebibytes in self.sizes.mebibytes:
            for name in ("upload", "download"):
                self.measure(name, "plain", False, mebibytes)

    def measure(self, name, how, graphed, mebibytes=0):
        row = {"work": f"{name} {mebibytes} MiB" if mebibytes else name, "how": how,
               "djinn": [], "eager": [], "graph": [] if graphed else None, "error": ""}
        self.rows.append(row)
        print(f"gpu: {row['work']}, {how}", file=sys.stderr, flush=True)
        if self.late():
            row["error"] = "left out: the time was up"
            return
        try:
            hows = ("plain", "graph") if graphed else ("plain",)
            self.local.call("begin", hows, name, mebibytes)
            self.remote.begin((how,), name, mebibytes)
            self._rounds(row, how, hows)
        except Exception as raised:  # noqa: BLE001  (one row of several)
            row["error"] = f"{type(raised).__name__}: {raised}"[:300]

    def _rounds(self, row, how, hows):
        sides = {"djinn": lambda number: self.remote.round(how, number)}
        for which, key in zip(hows, ("eager", "graph")):
            sides[key] = lambda number, which=which: self.local.call("round", which, number)
        for number in range(-2, self.options.rounds):
            order = list(sides)
            # Each variant is first in its turn.
            turn = number % len(order)
            results = {}
            for key in order[turn:] + order[:turn]:
                seconds, results[key] = sides[key](number)
                if number >= 0:
                    row[key].append(seconds)
            wrong = _difference(results["djinn"], results["eager"], self.exact)
            if wrong and not row["error"]:
                row["error"] = f"round {number}: {wrong}"


def _milliseconds(seconds):
    return f"{1e3 * statistics.median(seconds):.3f}" if seconds else "-"


def _ratio(row, key):
    if not row["djinn"] or not row[key]:
        return "-"
    return f"{statistics.median(a / b for a, b in zip(row['djinn'], row[key])):.2f}"


def table(rows):
    cells = [("work, times in ms", "Djinn", "", "eager", "graph", "to eager", "to graph", "")]
    for row in rows:
        cells.append((row["work"], row["how"], _milliseconds(row["djinn"]),
                      _milliseconds(row["eager"]), _milliseconds(row["graph"]),
                      _ratio(row, "eager"), _ratio(row, "graph"),
                      f"WRONG: {row['error']}" if row["error"] else "equal results"))
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(
        text.ljust(width) if i in (0, 1, 7) else text.rjust(width)
        for i, (text, width) in enumerate(zip(line, widths))).rstrip() for line in cells)


def _machine(device):
    about = {"python": platform.python_version(), "torch": torch.__version__,
             "processor": platform.processor() or platform.machine(),
             "cores": len(os.sched_getaffinity(0)), "device": device,
             "time": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds")}
    if device != "cpu":
        about["gpu"] = torch.cuda.get_device_name(torch.device(device))
    return about


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="run.sh run")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu")
    parser.add_argument("--json", default="djinn-gpu.json", help="file to write")
    parser.add_argument("--small", action="store_true", help="small models and tensors")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--random", type=int, default=300, help="random programs")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--limit", type=float, default=420, help="seconds")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    about = _machine(options.device)
    with djinn.local(workers=1, worker_threads=options.threads, worker_device=options.device,
                     worker_memory_bytes=(8 if options.device == "cpu" else 32) << 30):
        run = Run(options)
        run.check_all()
        run.measure_all()
        run.local.close()
    wrong = [check for check in run.checks if check["error"]]
    passed = not wrong and not any(row["error"] for row in run.rows)
    report = {"machine": about, "settings": vars(options), "passed": passed,
              "seconds": time.monotonic() - run.began, "checks": len(run.checks),
              "wrong_checks": wrong, "unit": "seconds", "results": run.rows}
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    print(table(run.rows))
    if options.device == "cpu":
        print("no CUDA graphs: the device is the CPU")
    print(f"{len(run.checks) - len(wrong)} of {len(run.checks)} checks passed; "
          f"{report['seconds']:.0f} s; wrote {options.json}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
