#!/bin/bash
# Runs a test whose embedded cluster is reached over gRPC, as workers on other
# machines are. Usage: over_grpc.sh TEST.
set -euo pipefail
export DJINN_SHARED_MEMORY=0
exec "$1"
