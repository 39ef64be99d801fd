# Ends the programs of a run on this host: those with FABBENCH_JOB=TOKEN in their environment.
# POSIX sh, with coreutils and grep.

# marked TOKEN: prints their process ids.
marked() {
    grep -lzxF "FABBENCH_JOB=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}

# end_programs TOKEN: SIGTERM, then SIGKILL after two seconds. Status 1 if some still run.
# libfabric leaves shared memory behind when its programs are killed.
end_programs() {
    ended=
    tries=0
    while pids=$(marked "$1") && [ -n "$pids" ] && [ "$tries" -lt 60 ]; do
        case $tries in
        0) kill -TERM $pids; kill -CONT $pids; ended=$pids ;;
        [2345][0-9]) kill -KILL $pids; ended="$ended $pids" ;;
        esac 2>/dev/null
        tries=$((tries + 1))
        sleep 0.1
    done
    for pid in $ended; do rm -f /dev/shm/"$pid":*; done
    [ -z "$pids" ]
}
