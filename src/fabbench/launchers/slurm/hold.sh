
# Holds its nodes while fabbench measures, in steps. If there has been no step for three minutes, fabbench has exited:
# the job ends.
set -u
nap=
trap 'kill $nap 2>/dev/null; exit 143' TERM INT HUP
idle=0
while [ "$idle" -lt 12 ]; do
    sleep 15 &
    nap=$!
    wait "$nap"
    # If Slurm's controller does not answer, the steps are unknown.
    steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i 2>/dev/null) || continue
    case $steps in
    *.[0-9]*) idle=0 ;;
    *) idle=$((idle + 1)) ;;
    esac
done
