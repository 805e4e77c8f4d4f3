#!/usr/bin/env bash
# Runs the program as a user would: its output, and its errors.
set -euo pipefail

program=client_lib/examples/sentence_similarity/sentence_similarity
model=--model_dir=../minilm/model

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect_line LINE COMMAND...: the command succeeds and prints such a line.
expect_line() {
  local line=$1 output
  shift
  output=$("$@") || fail "exit status $? of: $*"
  grep -qxF -- "$line" <<<"$output" || fail "no line '$line' in: $output"
}

# expect_error TEXT COMMAND...: the command ends with status 1 and prints the text.
expect_error() {
  local text=$1 output status=0
  shift
  output=$("$@" 2>&1) || status=$?
  [[ $status == 1 ]] || fail "exit status $status, not 1, of: $*"
  [[ $output == *"$text"* ]] || fail "no '$text' in: $output"
}

expect_line '   1 and 4: 0.894' "$program" "$model"
expect_line '   2  Good evening' "$program" "$model" 'Good day' 'Good evening'
expect_error '--model_dir is missing' "$program"
expect_error '/nowhere/config.json' "$program" --model_dir=/nowhere
expect_error 'no_such_device' "$program" "$model" --device=no_such_device
expect_error 'takes 2 to 512' "$program" "$model" --max_tokens=513
expect_line 'All checks passed.' "$program" "$model" --demo --requests=3
expect_error '/nowhere.token' "$program" "$model" \
  --coordinator=unix:/nowhere --token_file=/nowhere.token
