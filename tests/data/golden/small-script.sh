#!/usr/bin/env bash
# fabbench parse and compare read what this prints.
# Functions are arguments:
# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329
set -um; exec 2>&1 # errors belong to the log
read -ra hosts <<<"${*:-${HOSTS:-}}"
[ "${#hosts[@]}" -ge 2 ] || { echo "usage: bash $0 HOST… (2 hosts)" >&2; exit 3; }
[ "${#hosts[@]}" = 2 ] || { echo "This measures 2 nodes, and there are ${#hosts[@]}. Render it again with --nodes." && exit 3; }

trap '{ kill $(jobs -p); wait; } 2>/dev/null' EXIT
trap 'echo "fabbench: The script was stopped by a signal."; exit 143' INT HUP TERM
step() { # NAME FACTS COMMAND…: run a command between marker lines
    echo "#@fabbench begin $execution/$1 $2" || exit 74 # the disk is full
    "${@:3}" </dev/null & job=$!
    { tail --pid=$$ -f /dev/null; kill "$job"; } &>/dev/null & # it ends with this script, even after kill -9
    if wait "$job"; then code=0; else code=$? status=4; fi
    { kill -- -$!; wait $!; } 2>/dev/null
    echo "#@fabbench end $execution/$1 $code"
}

on() { # NUMBER WORD…: become a program on a host
    local host=${hosts[$1]} words=("${@:2}")
    [ "$host" != "${hosts[0]}" ] || exec "${words[@]}"
    exec ssh -n -o BatchMode=yes -o ServerAliveInterval=15 "$host" "${words[*]@Q}"
}

side() { # ROLE NUMBER SECONDS WORD…: run one side of a pair
    on "$2" timeout --foreground -k 10 "$3" "${@:4}" 2>&1 | sed -u "s/^/[fabbench:$1] /"
}

pair() { # HOST SECONDS: start the server on the first host, then the client on HOST; as a job
    set -m -o pipefail
    trap 'exit 143' TERM
    trap '{ for job in $(jobs -p); do kill -- "-$job"; done; wait; } 2>/dev/null' EXIT # whole groups
    side server 0 "$2" "${server[@]}" & started=$!
    for _ in {1..100}; do
        grep -qs ":$(printf %04X "$port") .*:0000 0A " /proc/net/tcp /proc/net/tcp6 && break
        kill -0 "$started" 2>/dev/null || break
        sleep 0.2
    done
    side client "$1" "$2" "${client[@]}" &
    wait "$!" && wait "$started"
}

status=0 port=$((20000 + RANDOM % 9000))
for execution in 000-tcp-r1; do
    common=(env fi_pingpong)
    port=$((port + 1))
    server=("${common[@]}" -B "${port}")
    client=("${common[@]}" -P "${port}" "${hosts[0]}")
    step a '' pair 1 20
done
exit "$status"
