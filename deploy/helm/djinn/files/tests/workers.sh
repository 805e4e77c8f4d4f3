#!/bin/sh
# Runs in the pod of `helm test`. Ends with 0 once a worker has joined and every worker that has
# joined says, at the address that programs dial, that it serves.
#
# usage: workers.sh SECONDS    how long it tries
set -uf

# Prints the addresses of the active workers. The state of a worker stands before its address.
addresses() {
  djinnctl get workers -o json | sed -n \
    -e '/"state": /h' \
    -e '/"address": /{x;/"ACTIVE"/{x;s/.*: "\(.*\)".*/\1/p;s/.*//;x};}'
}

# Prints the answer of the worker at an address.
health() {
  if [ -z "${DJINN_TLS_CA_FILE:-}" ]; then
    set -- -plaintext "$1"
  elif [ -z "${DJINN_TLS_CERTIFICATE_FILE:-}" ]; then
    set -- -cacert "$DJINN_TLS_CA_FILE" -authority "$DJINN_TLS_WORKER_SERVER_NAME" "$1"
  else
    set -- -cacert "$DJINN_TLS_CA_FILE" -authority "$DJINN_TLS_WORKER_SERVER_NAME" \
      -cert "$DJINN_TLS_CERTIFICATE_FILE" -key "$DJINN_TLS_PRIVATE_KEY_FILE" "$1"
  fi
  grpcurl -max-time 5 "$@" grpc.health.v1.Health/Check 2>&1
}

# Sets $failure to what is missing; empty if nothing is.
look() {
  failure="no worker joined"
  for address in $(addresses); do
    failure=""
    answer=$(health "$address")
    case $answer in
      *'"SERVING"'*) ;;
      *) failure="the worker at $address does not serve: $answer" && return ;;
    esac
  done
}

left=$1
look
while [ -n "$failure" ] && [ "$left" -gt 0 ]; do
  sleep 1
  left=$((left - 1))
  look
done
djinnctl get workers
[ -z "$failure" ] || { echo "$failure"; exit 1; }
