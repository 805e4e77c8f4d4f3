"""Runs the benchmarks in Python, or those that are named.

    python -m tests.bench.python.runner [--rounds N] [--device D] [--json FILE] [NAME...]

Each is measured beside the same program without Djinn, in turn, on an embedded cluster:
both on the CPU, or on the GPU that --device names.
Ends with status 1 if an output was wrong.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import tempfile
import time
import traceback

import torch

import djinn
from tests.bench.python import (
    capture, families, minilm, mlp, protection, recovery, report, tracing,
)

BENCHMARKS = {
    "python_capture": capture.measure,
    "python_families": families.measure,
    "python_mlp_step": mlp.measure,
    "python_minilm": minilm.measure,
    "python_protection": protection.measure,
    "python_tracing": tracing.measure,
    "recovery": recovery.measure,
}


def _json_path(given):
    if given is None:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return pathlib.Path(tempfile.gettempdir()) / f"djinn-bench-python-{now}.json"
    path = pathlib.Path(given)
    # The runner in C++ has the same name, and came first.
    return path.with_suffix(".python.json") if path.exists() else path


def main():
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2, help="of the worker and locally")
    parser.add_argument("--device", default="cpu",
                        help="what the worker and local runs compute on: cpu, or cuda:N")
    parser.add_argument("--json", help="file to write; a new one among the temporary "
                        "files unless given; .python.json where that exists")
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], metavar="NAME")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")

    torch.set_num_threads(options.threads)
    rows = []
    with djinn.local(workers=1, worker_threads=options.threads,
                     worker_device=options.device):
        for name in options.names or BENCHMARKS:
            print(f"bench: {name}", file=sys.stderr)
            try:
                rows += BENCHMARKS[name](djinn.device(), options.device, options.rounds)
            except Exception as error:  # noqa: BLE001  (a row, too)
                traceback.print_exc()
                rows.append(report.Row(name, "not measured", error=repr(error)))
    print(report.table(rows))
    about = {"python": platform.python_version(), "torch": torch.__version__,
             "device": options.device,
             "rounds": options.rounds, "threads": options.threads,
             "load_after": os.getloadavg()}
    path = _json_path(options.json)
    path.write_text(json.dumps(
        {"conditions": about, "results": report.as_json(rows)}, indent=1))
    print(f"bench: wrote {path}")
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
