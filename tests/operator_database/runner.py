"""Runs PyTorch's operator database against an embedded cluster.

  runner.py [--quick] [--shard I/N] [--operators REGEX] [--dtypes A,B]
            [--limit N] [--processes N] [--results FILE]

Every sample, or up to --limit of each operator and dtype, runs on the CPU and on a
remote device; those that the CPU passes are counted. Results go to FILE, one JSON
object a line for each operator, dtype and variant, the summary to standard output and
FILE.summary. Fails unless enough of them are equal (report.py).

With client_lib/python's package on PYTHONPATH and DJINN_BIN_DIR naming the folder of
the servers, `python -m tests.operator_database.runner` runs it by hand.
"""

import argparse
import json
import os
import pathlib
import queue
import re
import sys
import threading
import time

import torch
from torch.testing._internal import common_methods_invocations

from tests.operator_database import report
from tests.operator_database.child import Child

DTYPES = ("float32", "float64", "bfloat16", "int64", "bool", "complex64")
# With --quick, every operator runs in one dtype with a few samples.
QUICK_DTYPES = ("float32",)
QUICK_SAMPLES = 3

_COVERAGE_PAGE = "docs/user/operator-coverage.md"


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def select_tasks(options):
    """One task for each operator and dtype."""
    dtypes = options.dtypes or (QUICK_DTYPES if options.quick else DTYPES)
    limit = options.limit or (QUICK_SAMPLES if options.quick else None)
    pattern = re.compile(options.operators)
    part, parts = options.shard
    tasks = []
    for index, op in enumerate(common_methods_invocations.op_db):
        if index % parts != part or not pattern.fullmatch(name_of(op)):
            continue
        for dtype in dtypes:
            if getattr(torch, dtype) in op.supported_dtypes("cpu"):
                tasks.append({"operator": index, "dtype": dtype, "limit": limit})
    return tasks


def run_tasks(tasks, processes, on_record):
    """Calls `on_record` for every operator, dtype and variant, one at a time."""
    waiting = queue.Queue()
    for task in tasks:
        waiting.put(task)
    lock = threading.Lock()

    def work():
        child = Child()
        try:
            while True:
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return
                start = time.monotonic()
                outcomes = child.run(task)
                seconds = time.monotonic() - start
                op = common_methods_invocations.op_db[task["operator"]]
                with lock:
                    for variant, outcome in outcomes.items():
                        on_record(
                            {
                                "operator": name_of(op),
                                "dtype": task["dtype"],
                                "variant": variant,
                                **outcome,
                                "task_seconds": round(seconds, 3),
                            }
                        )
        finally:
            child.stop()

    threads = [threading.Thread(target=work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def parse_options(arguments):
    def shard(text):
        part, parts = map(int, text.split("/"))
        if not 0 <= part < parts:
            raise argparse.ArgumentTypeError("a shard is I/N with 0 <= I < N")
        return part, parts

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--shard", type=shard, default=(0, 1))
    parser.add_argument("--operators", default=".*")
    parser.add_argument("--dtypes", type=lambda text: text.split(","))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--results", type=pathlib.Path)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse_options(arguments)
    exceptions = report.read_exceptions(pathlib.Path(_COVERAGE_PAGE).read_text())
    start = time.monotonic()
    records = []
    output = open(options.results, "w") if options.results else None

    def on_record(record):
        records.append(record)
        if output:
            output.write(json.dumps(record) + "\n")
            output.flush()

    run_tasks(select_tasks(options), options.processes, on_record)
    summary = report.Summary(records, exceptions)
    if output:
        output.close()
        path = options.results.with_name(options.results.name + ".summary")
        path.write_text(json.dumps(summary.as_dict(), indent=1) + "\n")
    print(summary.text())
    print(f"{time.monotonic() - start:.0f} s")
    return 0 if summary.passed() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
