"""Sets Djinn beside its peers:

    python -m tests.bench.python.peers.runner [--rounds N] [--threads N] [--json FILE]
        [PEER...]

Each in a process of its own, which measures local eager in turn with it, so that ratios
can be compared. Prints a table in Markdown. A peer that is not installed, or cannot do
something, has the reason in its place.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from tests.bench.python import report

ROOT = pathlib.Path(__file__).resolve().parents[4]
BASE = ROOT / ".deps/python/bin/python"
PACKAGE = ROOT / "bazel-bin/client_lib/python/package"
# Peers that need more than .deps/python.
ENVIRONMENTS = {"mycelya-torch, mock": "mycelya-torch", "Ray actor": "ray",
                "PyTriton": "nvidia-pytriton"}
PEERS = ("local eager", "torch.compile", "Djinn, strict", "Djinn, fast",
         "Djinn, fast, registered", "Djinn, fast, gRPC", "torch RPC, uv", "torch RPC, shm",
         "mycelya-torch, mock", "Ray actor", "PyTriton")
# Programs that are not compared, and why.
ABSENT = {"skytorch 0.1.0": "not installed: it reaches workers through a Kubernetes "
                            "cluster alone"}
# Seconds after which a peer that has not answered is given up.
PATIENCE = 600


def _interpreter(peer):
    """The interpreter, or None and why not."""
    name = ENVIRONMENTS.get(peer)
    if name is None:
        return BASE, ""
    folder = ROOT / ".deps/peers"
    failed = folder / f"{name}.failed"
    if failed.exists():
        return None, f"not installed: {failed.read_text().strip()[:160]}"
    python = folder / name / "bin/python"
    return (python, "") if python.exists() else (None, "not installed: no environment")


def _measure(peer, options):
    python, missing = _interpreter(peer)
    if python is None:
        return {"missing": missing}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{PACKAGE}",
                   # A peer's device is registered in place of Djinn's.
                   "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if peer == "Ray actor":
        # The peer's processes and spinning OpenMP threads compete for the
        # cores, so that the encoder would take minutes.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    try:
        process = subprocess.run(
            [python, "-m", "tests.bench.python.peers.peer", peer,
             "--rounds", str(options.rounds), "--threads", str(options.threads)],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
            timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"missing": f"gave no answer within {PATIENCE} s"}
    lines = process.stdout.strip().splitlines()
    if process.returncode or not lines:
        return {"missing": f"ended with status {process.returncode}"}
    return json.loads(lines[-1])


def _cell(name, found):
    if "not_measured" in found:
        return "-"
    if found["error"]:
        return f"WRONG: {found['error']}"
    shown = report.seconds(statistics.median(found["peer"]))
    # Locally nothing moves.
    if "MiB" in name:
        return shown
    ratios = [a / b for a, b in zip(found["peer"], found["local"])]
    return f"{shown} ({statistics.median(ratios):.2f})"


def table(results):
    names = list(dict.fromkeys(
        name for result in results.values() for name in result.get("workloads", {})))
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    notes = []
    for peer, result in results.items():
        if "missing" in result:
            lines.append(f"| {peer} | {result['missing']} |" + " |" * (len(names) - 1))
            continue
        cells = [_cell(name, result["workloads"][name]) for name in names]
        lines.append(f"| {peer} ({result['version']}) | " + " | ".join(cells) + " |")
        reasons = {found["not_measured"] for found in result["workloads"].values()
                   if "not_measured" in found}
        notes += [f"{peer}: {reason}" for reason in sorted(reasons)]
    return "\n".join([*lines, "", *notes])


def main():
    parser = argparse.ArgumentParser(prog="bench peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("peers", nargs="*", choices=[[], *PEERS], metavar="PEER")
    options = parser.parse_args()
    results = {}
    for peer in options.peers or PEERS:
        print(f"bench: {peer}", file=sys.stderr)
        results[peer] = _measure(peer, options)
    if not options.peers:
        results.update({peer: {"missing": why} for peer, why in ABSENT.items()})
    print(table(results))
    path = pathlib.Path(options.json or pathlib.Path(tempfile.gettempdir()) / (
        "djinn-bench-peers-" + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + ".json"))
    path.write_text(json.dumps(results, indent=1))
    print(f"bench: wrote {path}", file=sys.stderr)
    return 1 if any(found.get("error") for result in results.values()
                    for found in result.get("workloads", {}).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
