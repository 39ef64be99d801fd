# Process 1 of fabbench's pods. It keeps a pod running as long as fabbench sends heartbeats, and reaps what
# programs leave behind. POSIX sh with coreutils.
#
#   sh -c … fabbench BEAT LEASE
#
# fabbench creates the file BEAT every few seconds. Without it for LEASE seconds the pod exits, and its
# Job ends: a laptop that dies leaves nothing in the cluster. Seconds are counted, because clocks may jump.
set -u
beat=$1 lease=$2

# The second argument is shown as the message of the pod's status.
end() {
    echo "fabbench: $2" >&2
    if [ -w /dev/termination-log ]; then echo "$2" >/dev/termination-log; fi
    exit "$1"
}

trap 'end 143 "Terminated by a signal."' TERM INT
quiet=0
while [ "$quiet" -lt "$lease" ]; do
    # In the background, so that signals are handled at once.
    sleep 1 &
    wait "$!"
    quiet=$((quiet + 1))
    if [ -e "$beat" ]; then
        rm -f "$beat"
        quiet=0
    fi
done
end 75 "No heartbeat from fabbench for $lease s."
