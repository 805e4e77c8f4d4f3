#!/usr/bin/env bash
# Packs what a machine with a GPU needs to check and time Djinn, and runs it there; see
# README.md beside this file.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
max_bytes=60000000

die() {
  echo "run.sh: $*" >&2
  exit 2
}

# Writes an archive with the stripped programs, the plug-in for CUDA, the Python
# package with the libraries that it needs, and the programs of this folder.
# Needs a checkout.
pack() {
  local root output=djinn-gpu.tar.xz headers= argument
  root=$(cd "$here/../.." && pwd)
  for argument in "$@"; do
    case $argument in
      --python-headers=*) headers=${argument#*=} ;;
      -*) die "pack: unknown option $argument" ;;
      *) output=$argument ;;
    esac
  done
  local options=()
  if [[ -n $headers ]]; then
    [[ -f $headers/Python.h ]] || die "pack: no Python.h in $headers"
    options=("--repo_env=DJINN_PYTHON_HEADERS=$headers")
  fi
  "$root/djinn" setup python
  "$root/djinn" build "${options[@]}" //client_lib/python:package \
    //coordinator:djinn-coordinator //gpu_worker:djinn-worker \
    //gpu_worker/device/cuda:libdjinn_cuda.so
  local bin=$root/bazel-bin folder
  folder=$(mktemp -d)
  trap "rm -rf '$folder'" EXIT
  local stage=$folder/djinn-gpu
  mkdir -p "$stage/tests/gpu" "$stage/tests/hugging_face" "$stage/tests/operating" \
    "$stage/python"
  "$root/.deps/python/bin/python" "$root/deploy/python/build_wheel.py" \
    --package "$bin/client_lib/python/package/djinn" --output "$folder/wheel" \
    --programs "$bin/coordinator/djinn-coordinator" "$bin/gpu_worker/djinn-worker" \
    "$bin/gpu_worker/device/cuda/libdjinn_cuda.so"
  unzip -q "$folder"/wheel/*.whl -d "$stage/python"
  cp "$here"/*.py "$stage/tests/gpu"
  cp "$root/tests/hugging_face/models.py" "$stage/tests/hugging_face"
  cp "$root/tests/operating/cluster.py" "$stage/tests/operating"
  cp "$here/run.sh" "$here/README.md" "$stage"
  tar -C "$folder" -cJf "$output" djinn-gpu
  local bytes
  bytes=$(stat -c %s "$output")
  ((bytes <= max_bytes)) || die "$output has $bytes bytes, more than $max_bytes"
  echo "wrote $output, $bytes bytes"
}

# Runs a module inside the unpacked archive, with the python3 that has PyTorch, for so
# many seconds at most.
run_module() {
  local module=$1 seconds=$2
  shift 2
  [[ -d $here/python/djinn ]] || die "this is no unpacked archive"
  local torch
  torch=$(TORCH_DEVICE_BACKEND_AUTOLOAD=0 python3 -c \
    'import os, torch; print(os.path.dirname(torch.__file__))') ||
    die "python3 has no PyTorch"
  local libraries=$torch/lib library
  for library in "$torch"/../nvidia/*/lib; do
    [[ -d $library ]] && libraries+=:$library
  done
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PYTHONPATH=$here/python:$here HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
  exec timeout "$seconds" python3 -m "$module" "$@"
}

run() {
  run_module tests.gpu.main 480 "$@"
}

walls() {
  run_module tests.gpu.walls 240 "$@"
}

command=${1:-}
(($#)) && shift
case $command in
  pack | run | walls) "$command" "$@" ;;
  *) die "usage: run.sh pack [--python-headers=FOLDER] [ARCHIVE], or run.sh run|walls [OPTION...]" ;;
esac
