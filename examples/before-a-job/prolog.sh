#!/bin/sh
# Keeps a Slurm job from starting on nodes that are not fine, and drains them.
#
# In slurm.conf: PrologSlurmctld=/etc/fabbench/prolog.sh. It runs as SlurmUser on the controller before each job; that
# user needs fabbench, and ssh to the nodes. Two nodes take less than a minute. A job whose nodes are rejected is
# requeued, and gets others. What is not certain keeps no job waiting.
set -u
FABBENCH_STORE=${FABBENCH_STORE:-/var/lib/fabbench/prolog}
export FABBENCH_STORE
drain=$(fabbench accept --on ssh --host "$SLURM_JOB_NODELIST" --max-time 60 --print-cordon scontrol ${ACCEPT_OPTIONS:-})
status=$?
if [ "$status" -eq 1 ]; then
  printf '%s\n' "$drain" | sh
fi
logger -t fabbench "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: status $status. $drain" 2>/dev/null
[ "$status" -ne 1 ]
