#!/bin/sh
# Keeps a Slurm job from starting on nodes that are not fine, and drains them.
#
# In slurm.conf: PrologSlurmctld=/etc/fabbench/prolog.sh. It runs as SlurmUser on the controller before each job; that
# user needs fabbench, and ssh to the nodes. Two nodes take less than a minute. A job of which a node is drained is
# requeued, and gets others. What is not certain, what is only installed wrongly, and what no node is to blame for
# drains nothing and keeps no job waiting: a requeued job would get the same nodes again, and never start.
set -u
FABBENCH_STORE=${FABBENCH_STORE:-/var/lib/fabbench/prolog}
export FABBENCH_STORE
drain=$(fabbench accept --on ssh --host "$SLURM_JOB_NODELIST" --max-time 60 --print-cordon scontrol ${ACCEPT_OPTIONS:-})
status=$?
if [ "$status" -eq 1 ] && [ -n "$drain" ]; then
  printf '%s\n' "$drain" | sh
fi
logger -t fabbench "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: status $status. $drain" 2>/dev/null
[ "$status" -ne 1 ] || [ -z "$drain" ]
