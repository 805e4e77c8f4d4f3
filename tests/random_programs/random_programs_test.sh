#!/usr/bin/env bash
# Runs random programs; the arguments are the program's flags.
set -euo pipefail

export DJINN_BIN_DIR=$TEST_TMPDIR/bin
mkdir "$DJINN_BIN_DIR"
ln -s "$PWD/coordinator/djinn-coordinator" "$PWD/gpu_worker/djinn-worker" "$DJINN_BIN_DIR"

if [[ -n ${TEST_TOTAL_SHARDS:-} ]]; then
  touch "$TEST_SHARD_STATUS_FILE"
  set -- "$@" "--shards=$TEST_TOTAL_SHARDS" "--shard=$TEST_SHARD_INDEX"
fi
# Root errors are logged by the thousand.
if ! tests/random_programs/random_programs "$@" 2>"$TEST_TMPDIR/log"; then
  tail -n 50 "$TEST_TMPDIR/log"
  exit 1
fi
