# ---------------------------------------------------------------- in a Slurm job

# Programs get the environment of this script, no matter how the job was submitted.
export SLURM_EXPORT_ENV=ALL
# Sent some time before the job's time limit.
trap 'signal=USR1 number_of_signal=10' USR1
# A requeued job resumes where it was.
own_file=
if [ -z "${DONE_FILE:-}" ]; then
    DONE_FILE=$PWD/fabbench-$SLURM_JOB_ID.done
    own_file=$DONE_FILE
fi
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || say 'The job was requeued: executions that succeeded are not repeated.'

[ "${hosts[0]}" != localhost ] || hosts=("$SLURMD_NODENAME")
nodes=$(IFS=,; printf %s "${hosts[*]}")

: >"$base/nodes"
# A process on every node cleans up when the job ends, no matter how: Slurm signals it.
srun --overlap --quiet --nodes="${#hosts[@]}" --ntasks="${#hosts[@]}" --ntasks-per-node=1 \
    --cpu-bind=none --nodelist="$nodes" -- \
    sh -c 'trap "rm -rf \"$1\"; exit" TERM INT HUP
        id=$(cat /sys/devices/virtual/dmi/id/board_asset_tag 2>/dev/null)
        case $id in i-*) ;; *) id= ;; esac
        echo "fabbench: Node $(uname -n)${id:+ is $id}."
        sleep infinity &
        wait' sh "$base" </dev/null >"$base/nodes" 2>&1 &
keeper=$!
disown
for ((tries = 0; tries < 600; tries++)); do
    check_signals
    [ "$(grep -c '^fabbench: Node' "$base/nodes")" -lt "${#hosts[@]}" ] || break
    kill -0 "$keeper" 2>/dev/null || break
    sleep 0.1
done
sort "$base/nodes"
[ "$(grep -c '^fabbench: Node' "$base/nodes")" -ge "${#hosts[@]}" ] ||
    stop 3 'srun does not start programs on every node of the job.'

