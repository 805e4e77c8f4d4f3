#!/bin/sh
# Writes a worker's configuration from the group's, in which @WORKER_ID@ and @HOST@ stand for
# what differs between its pods.
#
# usage: configure.sh GROUP_CONFIGURATION CONFIGURATION
set -eu
case $POD_IP in
  *:*) host="[$POD_IP]" ;;
  *) host=$POD_IP ;;
esac
sed -e "s|@WORKER_ID@|$WORKER_ID|g" -e "s|@HOST@|$host|g" \
  "$1" >"$2"
