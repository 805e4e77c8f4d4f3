#!/usr/bin/env bash
# Runs bindings_test.py with the interpreter of the environment that
# `./djinn setup python` makes.
set -euo pipefail

folder=$(<"$TEST_SRCDIR/python_environment/folder.txt")
if [[ ! -x $folder/bin/python ]]; then
  echo "the environment for tests in Python is missing: run ./djinn setup python" >&2
  exit 1
fi
cd "$TEST_SRCDIR/$TEST_WORKSPACE/client_lib/python"
unset DJINN_COORDINATOR DJINN_TOKEN_FILE
export PYTHONPATH=$PWD/package PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES=
exec "$folder/bin/python" -m unittest bindings_test
