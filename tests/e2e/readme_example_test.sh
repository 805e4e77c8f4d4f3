#!/usr/bin/env bash
# Checks that README.md's example is the one that is compiled, and that it runs.
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

folder=tests/e2e
sed -n '/^```cpp$/,/^```$/p' README.md | sed '1d;$d' >"$TEST_TMPDIR/shown"
# Removes the comment on top.
sed '1,/^$/d' "$folder/readme_example.cc" >"$TEST_TMPDIR/compiled"
[[ -s $TEST_TMPDIR/shown ]] || fail "no C++ block in README.md"
diff -u "$TEST_TMPDIR/compiled" "$TEST_TMPDIR/shown" || fail "README.md and $folder/readme_example.cc differ"

output=$("$folder/readme_example") || fail "exit status $?"
# The output is an argmax for each of the 8 rows, then the tensor's type.
[[ $(grep -cE '^ *[0-9]$' <<<"$output") == 8 && $output == *'CPULongType{8}'* ]] ||
  fail "printed: $output"
