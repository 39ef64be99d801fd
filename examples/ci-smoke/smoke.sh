#!/usr/bin/env bash
# The smoke check of a test cluster, after a change of a driver or an image: one `fabbench run`.
#
#   FABBENCH_TARGET=kubernetes examples/ci-smoke/smoke.sh
#
# FABBENCH_TARGET  where to run: a target of fabbench.yaml, or a launcher
# SMOKE_RUN        what to run. Default: nccl on EFA from 8 bytes to 2 GB, three times
# SMOKE_GATES      what must hold, with spaces between gates: busbw@1G>=70GB/s busbw@64M..2G:10%
# SMOKE_BASELINE   the run directory or log file that gates such as busbw@64M..2G:10% compare with
# SMOKE_DEADLINE   seconds for everything. Default: 1800
# SMOKE_OUT        directory for the summary (summary.md), JUnit XML (junit.xml) and the run (runs/). Default: ./smoke
#
# On GitHub, the summary is that of the build, too.
#
# The exit status is fabbench's: 0 passed; 1 measured successfully, but a gate failed; 2 usage error; 3 environment
# error; 4 result not trustworthy, for example because EFA did not carry the data. 124: out of time.
set -euo pipefail

out=${SMOKE_OUT:-smoke}
deadline=${SMOKE_DEADLINE:-1800}
read -ra run <<<"${SMOKE_RUN:-nccl --efa --min-bytes 8 --max-bytes 2G --repeat 3}"
read -ra gates <<<"${SMOKE_GATES:-}"

command=(fabbench run "${run[@]}" --format markdown --store "$out/runs"
    --junit "$out/junit.xml")
for gate in "${gates[@]}"; do
    command+=(--gate "$gate")
done
if [[ -n ${SMOKE_BASELINE:-} ]]; then
    command+=(--baseline "$SMOKE_BASELINE")
fi

mkdir -p "$out"
# In the background, so that a signal reaches fabbench at once and it takes its pods down: CI gives a cancelled job
# seconds. A signal ends the first wait; the second one has the status.
timeout --foreground --kill-after=120 "$deadline" "${command[@]}" >"$out/table.md" &
pid=$!
trap 'kill -TERM "$pid" 2>/dev/null || true' INT TERM
status=0
wait "$pid" || status=$?
if kill -0 "$pid" 2>/dev/null; then
    status=0
    wait "$pid" || status=$?
fi

case $status in
    0) verdict="passed" ;;
    1) verdict="failed: measured well, and a gate was breached" ;;
    2) verdict="not measured: the command line or configuration is not valid" ;;
    3) verdict="not measured: the cluster said no" ;;
    4) verdict="failed: the measurement cannot be trusted" ;;
    124 | 137) verdict="failed: not done after $deadline s" ;;
    *) verdict="interrupted (status $status)" ;;
esac

{
    echo "## Fabric smoke check $verdict"
    echo
    echo "\`${command[*]}\` on \`${FABBENCH_TARGET:-the default target}\`"
    echo
    cat "$out/table.md"
} >"$out/summary.md"
tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}" <"$out/summary.md"
exit "$status"
