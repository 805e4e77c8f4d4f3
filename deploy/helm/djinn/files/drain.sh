#!/bin/sh
# Runs beside a worker. djinnctl's address and token come from the environment.
#
# usage: drain.sh COMMAND MARKS
#   rejoin  lifts the drain under which an earlier pod of this name stopped, once per pod, and
#           stays. A cordon that an operator set remains.
#   drain   moves what the worker holds elsewhere; returns when it has no lease, when
#           $DRAIN_TIMEOUT seconds are over, or when the coordinator is away
#   wait    returns when `drain` has, or when the time is over
#
# MARKS is an empty folder that the pod's containers share.
set -u
marks=$2

show() { djinnctl get worker "$WORKER_ID" -o json; }

rejoin() {
  trap 'kill ${!:-} 2>/dev/null; exit 0' TERM INT
  while [ ! -e "$marks/rejoined" ]; do
    if shown=$(show 2>/dev/null); then
      case $shown in
        *'"draining": true'*) djinnctl uncordon worker "$WORKER_ID" >/dev/null && touch "$marks/rejoined" ;;
        *) touch "$marks/rejoined" ;;
      esac
    fi
    sleep 2 &
    wait $!
  done
  while :; do
    sleep 3600 &
    wait $!
  done
}

drain() {
  if djinnctl drain worker "$WORKER_ID" >/dev/null; then
    left=$DRAIN_TIMEOUT
    while [ "$left" -gt 0 ]; do
      shown=$(show) || break
      case $shown in *'"lease_count": 0,'*) break ;; esac
      sleep 1
      left=$((left - 1))
    done
  fi
  touch "$marks/drained"
}

await() {
  left=$DRAIN_TIMEOUT
  while [ ! -e "$marks/drained" ] && [ "$left" -gt 0 ]; do
    sleep 1
    left=$((left - 1))
  done
}

case $1 in
  rejoin) rejoin ;;
  drain) drain ;;
  wait) await ;;
esac
