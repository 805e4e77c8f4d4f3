#!/bin/bash
# Executes the instructions in docs/operator/secure.md: makes certificates with
# its commands, configures a cluster with its files, and reaches the cluster
# with its environment.
set -euo pipefail
root=$TEST_SRCDIR/djinn
cd "$(mktemp -d "$TEST_TMPDIR/recipe.XXXXXX")"

# Prints the Nth block of code in the section.
block() {
  awk -v wanted="$1" '
    /^## / { inside = /^## Encryption/ }
    inside && /^```/ { if (open) { open = 0 } else { open = 1; ++seen; next } }
    inside && open && seen == wanted' "$root/docs/operator/secure.md"
}

fail() {
  echo "$*" >&2
  cat ./*.log >&2
  exit 1
}

# Waits for a file that a program writes once it serves.
await() {
  for _ in {1..600}; do
    [[ -f $1 ]] && return
    kill -0 "$2" 2>/dev/null || fail "a program ended early"
    sleep 0.05
  done
  fail "no $1"
}

bash -euo pipefail -c "$(block 1)" 2>openssl.log || fail "no certificates"
for name in join admin research; do
  od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$name.token"
  chmod 600 "$name.token"
done
block 2 >coordinator.yaml
block 3 >w0.yaml
for config in coordinator w0; do
  program=gpu_worker/djinn-worker
  [[ $config == w0 ]] || program=coordinator/djinn-coordinator
  "$root/$program" --config=$config.yaml --validate || fail "$config.yaml is refused"
done

# Uses a free port.
sed -i 's/127.0.0.1:7070/127.0.0.1:0/' coordinator.yaml
"$root/coordinator/djinn-coordinator" --config=coordinator.yaml \
  --address_file=coordinator.address 2>coordinator.log &
coordinator=$!
worker=
trap 'kill $coordinator $worker 2>/dev/null; wait' EXIT
await coordinator.address $coordinator
sed -i "s/^coordinator: .*/coordinator: $(<coordinator.address)/" w0.yaml
printf 'device: {memory: 1GiB}\n' >>w0.yaml
"$root/gpu_worker/djinn-worker" --config=w0.yaml --address_file=w0.address 2>w0.log &
worker=$!
await w0.address $worker

eval "$(block 4)"
export DJINN_COORDINATOR=$(<coordinator.address) DJINN_ADMIN_TOKEN_FILE=admin.token
for _ in {1..600}; do
  "$root/coordinator/ctl/djinnctl" get workers >workers.log 2>&1 || fail "refused"
  grep -q 'w0.*ACTIVE' workers.log && break
  sleep 0.05
done
grep -q 'w0.*ACTIVE' workers.log || fail "the worker did not join"
"$root/tests/e2e/client_program" exit || fail "the program failed"
grep -H warning ./*.log && fail "the recipe earns warnings"
true
