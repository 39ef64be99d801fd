#!/usr/bin/env bash
# A gate for a test cluster's CI: fails when new logs are worse than stored ones.
#
#   examples/gate.sh NEW BASE
#
# Each is a directory of logs, or a list (a1.log,a2.log,a3.log): repeats show the noise. A single log works too,
# but then only a large loss fails the first gate.
#
# Status 0: good. 1: measured well, and worse. 2 to 4: the logs cannot be compared or trusted, so
# nothing is known about the fabric (see docs/formats.md).
set -euo pipefail

new=${1:?usage: examples/gate.sh NEW BASE}
base=${2:?usage: examples/gate.sh NEW BASE}

fabbench compare "$new" "$base" --label new --label base \
    --gate 'busbw@64K..64M:15%' \
    --gate 'busbw@64M>=4GB/s'
