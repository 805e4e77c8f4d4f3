#!/usr/bin/env bash
# Runs the unittest cases of one module with the interpreter of the environment
# that `./djinn setup python` makes, or `./djinn setup libraries` if PYTHON_ENVIRONMENT
# is libraries. The argument names the module as in Python.
set -euo pipefail

folder=$(<"$TEST_SRCDIR/python_environment/folder.txt")
environment=${PYTHON_ENVIRONMENT:-python}
folder=$(dirname "$folder")/$environment
if [[ ! -x $folder/bin/python ]]; then
  echo "the environment for tests in Python is missing: run ./djinn setup $environment" >&2
  exit 1
fi
root=$TEST_SRCDIR/$TEST_WORKSPACE
bin=$TEST_TMPDIR/bin
mkdir -p "$bin"
ln -sf "$root/coordinator/djinn-coordinator" "$root/gpu_worker/djinn-worker" "$bin"
export DJINN_BIN_DIR=$bin
export PYTHONPATH=$root:$root/client_lib/python/package
export PYTHONDONTWRITEBYTECODE=1
# No test may look for a model or a GPU elsewhere.
export HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES=
cd "$root"
# Python is not instrumented, and does not free all memory. The sanitizer's
# runtime must therefore be loaded first, together with the C++ runtime that
# throws exceptions, and must not look for leaks.
runtime=$(ldd "$root/client_lib/python/package/djinn/_djinn.so" |
  awk '/libasan|libstdc/ { print $3 }' | sort)
if [[ $runtime == *libasan* ]]; then
  export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  exec env LD_PRELOAD="${runtime//$'\n'/ }" "$folder/bin/python" -m tests.python.run "$@"
fi
exec "$folder/bin/python" -m tests.python.run "$@"
