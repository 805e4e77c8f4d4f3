#!/usr/bin/env bash
# Runs the benchmarks named by the arguments, or all, as briefly as possible.
set -euo pipefail

runner=$PWD/tests/bench/runner
json=$TEST_TMPDIR/bench.json
export DJINN_BIN_DIR=$TEST_TMPDIR/bin

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

mkdir "$DJINN_BIN_DIR"
ln -s "$PWD/coordinator/djinn-coordinator" "$PWD/gpu_worker/djinn-worker" "$DJINN_BIN_DIR"

status=0
output=$("$runner" no_such_benchmark 2>&1) || status=$?
[[ $status == 2 ]] || fail "exit status $status, not 2, for a wrong name"
[[ $output == *"there are: ping_pong"* ]] || fail "no names in: $output"

"$runner" --rounds=1 --model_dir=../minilm/model --json="$json" "$@" || fail "exit status $?"

python3 - "$json" "$@" <<'CHECK'
import json
import sys

with open(sys.argv[1]) as file:
    report = json.load(file)
results = report["results"]
assert all(row["correct"] for row in results)
measured = {row["benchmark"] for row in results}
wanted = set(sys.argv[2:]) or {
    "ping_pong", "idle_sessions", "stages", "second_start", "capture_and_ship", "read_back",
    "encoder", "decode", "decode_batch", "interactive", "shared_rows", "distance", "mlp_step",
    "transfer", "transfer_tcp"}
assert measured == wanted, measured
assert any("djinn" in row and row["djinn"]["p99"] > 0 for row in results)
for part in "machine", "versions", "conditions":
    assert report[part], part
CHECK
