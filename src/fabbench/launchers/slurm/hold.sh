
# Holds its nodes while fabbench tests parts of them, each in a step of its own. Once there has been no step for three
# minutes, fabbench is gone: the job ends, and nobody reads its output.
set -u
trap 'exit 143' TERM INT HUP
echo "fabbench: Held: $SLURM_JOB_NODELIST"
idle=0
while [ "$idle" -lt 12 ]; do
    sleep 15 &
    wait "$!"
    # Where Slurm's controller does not answer, nobody knows.
    steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i 2>/dev/null) || continue
    case $steps in
    *.[0-9]*) idle=0 ;;
    *) idle=$((idle + 1)) ;;
    esac
done
rm -f "fabbench-$SLURM_JOB_ID.out"
