#!/usr/bin/env bash
# A gate for a test cluster's CI: fails when a new log is worse than a stored one.
#
#   examples/gate.sh NEW BASE
#
# Status 0: good. 1: measured well, and worse. 2 to 4: the logs cannot be compared or trusted, so
# nothing is known about the fabric (see docs/formats.md).
set -euo pipefail

new=${1:?usage: examples/gate.sh NEW BASE}
base=${2:?usage: examples/gate.sh NEW BASE}

fabbench compare "$new" "$base" --label new --label base \
    --gate 'busbw@64K..64M:15%' \
    --gate 'busbw@64M>=4GB/s'
