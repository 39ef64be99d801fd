# What fabbench keeps on a host during a run, and how it cleans up there. POSIX sh, with coreutils, grep and
# util-linux's setsid.
#
#   sh agent MODE DIRECTORY TOKEN …
#
# All files of a run are in DIRECTORY, and all its programs have FABBENCH_JOB=TOKEN in their environment. `keep`
# ends it all by itself when heartbeats stop for long: a laptop that dies leaves nothing on the cluster.
set -u
umask 077
LC_ALL=C
export LC_ALL
mode=$1 folder=$2 token=$3
shift 3

# Report an error of the agent itself, as opposed to the status of its program.
fail() {
    echo "fabbench-agent: $1" >&2
    exit 120
}

# End the agent's other programs: those that lost contact with fabbench would wait for it forever.
end_agents() {
    # shellcheck disable=SC2046 # words
    kill $(grep -lzxF "FABBENCH_AGENT=$token" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | grep -vx "$$")
} 2>/dev/null

clean() {
    end_programs "$token" || echo "left processes $(marked "$token" | tr '\n' ' ')"
    end_agents
    rm -rf "$folder" || echo "left folder $folder"
}

# Output that programs print while the disk is full is lost, so `keep` checks all the time. It writes a new file
# each time: a file that is overwritten keeps its blocks.
has_room() {
    { echo . >"$folder/room.$$" && [ -s "$folder/room.$$" ]; } 2>/dev/null
    set -- "$?"
    rm -f "$folder/room.$$"
    return "$1"
}

require_room() {
    { has_room && [ ! -e "$folder/full" ]; } || fail no-room
}

# Print the users of other runs: a run writes to its directory every second. A token HEX-JOB is of a run whose nodes are
# not this one: it sees those with the same JOB.
others() {
    stat -c '%Y %U %n' "${folder%/*}"/fabbench-[0-9a-f]*"${token#"${token%%-*}"}" | while read -r changed user other; do
        [ "$other" = "$folder" ] || [ $(($(date +%s) - changed)) -gt "$1" ] || echo "other $user"
    done
} 2>/dev/null

# Anything printed before this is from the login shell.
echo "fabbench-agent: here"

case $mode in
start) # LEASE PARENT NAME…: as for keep; variables to look for
    setsid true || fail no-setsid
    : >"$folder/beat"
    : >"$folder/kept"
    trap '' HUP
    setsid sh "$folder/agent" keep "$folder" "$token" "$1" "$2" </dev/null >/dev/null 2>&1 &
    echo "$!" >"$folder/keeper" || exit
    others 15
    shift 2
    for name; do
        eval "[ -z \"\${$name+set}\" ]" || echo "has $name"
    done
    ;;

keep) # LEASE PARENT: end everything after so many seconds without a heartbeat, or with this process
    silent=0
    while [ "$silent" -lt "$1" ]; do
        sleep 1
        [ -d "$folder" ] || exit 0
        [ -z "$2" ] || kill -0 "$2" 2>/dev/null || break
        has_room || : >"$folder/full"
        if [ "$folder/beat" -nt "$folder/kept" ]; then
            : >"$folder/kept"
            silent=0
        else
            silent=$((silent + 1))
        fi
    done
    clean
    ;;

beat) # for each line of standard input
    while read -r _; do
        : >"$folder/beat" && echo beat
        others 3
    done
    ;;

counters) fabbench_counters ;;

put) # write files: each is a line SIZE PATH of standard input, and its bytes
    while read -r size path; do mkdir -p "${path%/*}" && head -c "$size" >"$path" || exit; done
    ;;

run) # KIB NAME COMMAND…: start a program that outlives us, and print its output, up to KIB
    kept=$1 name=$2
    shift 2
    # In a directory that exists on every host: hydra's ranks start in mpirun's.
    { cd "$folder" && mkdir -p steps && : >"steps/out.$name" && mkfifo "steps/pipe.$name"; } || fail no-room
    require_room
    trap '' HUP
    # The program is not blocked by output that is not kept. POSIX ulimit counts in units of 512 bytes.
    setsid sh -c 'trap "" HUP XFSZ; ulimit -f "$1"; cat; exec cat >/dev/null' sh "$((kept * 2))" \
        <"steps/pipe.$name" >"steps/out.$name" 2>/dev/null &
    reader=$!
    setsid "$@" >"steps/pipe.$name" 2>&1 </dev/null &
    program=$!
    cd steps || exit
    echo "$reader" >"reader.$name"
    echo "$program" >"pid.$name"
    # Once the program has ended and its output is kept, tail reads the rest and ends too.
    tail -n +1 -s 0.05 --pid="$reader" -f "out.$name" 2>/dev/null &
    wait "$program"
    status=$?
    # Processes that it left behind may hold its output open forever.
    tries=0
    while kill -0 "$reader" 2>/dev/null && [ "$tries" -lt 20 ]; do sleep 0.05; tries=$((tries + 1)); done
    kill -s TERM -- "-$reader" 2>/dev/null
    echo "$status" >"status.$name"
    wait
    require_room
    exit "$status"
    ;;

follow) # NAME LINE: print the program's past and future output from a line on
    { cd "$folder/steps" && reader=$(cat "reader.$1"); } || fail not-started
    tail -n "+$2" -s 0.05 --pid="$reader" -f "out.$1" 2>/dev/null
    tries=0
    while [ ! -s "status.$1" ] && [ "$tries" -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    require_room
    { status=$(cat "status.$1") && [ -n "$status" ]; } || fail no-status
    exit "$status"
    ;;

listens) # NAME PORT (in hexadecimal digits): wait until the program listens there or has ended
    tries=0
    while [ ! -s "$folder/steps/pid.$1" ] && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    program=$(cat "$folder/steps/pid.$1")
    while kill -0 "$program" 2>/dev/null; do
        for socket in $(cat "/proc/$program/net/tcp" "/proc/$program/net/tcp6" 2>/dev/null |
            awk -v port=":$2" '$4 == "0A" && substr($2, length($2) - 4) == port { print $10 }'); do
            ls -l "/proc/$program/fd" 2>/dev/null | grep -qF "socket:[$socket]" && exit 0
        done
        sleep 0.05
    done
    exit 1
    ;;

watch) # IN PREFIX KIB: print the lines of files in a new directory; each line of input checks for new and for too
    # large files; `end` ends
    { mkdir -p "$1" && cd "$1"; } || fail no-room
    sleep 100000 &
    guard=$!
    seen=
    echo ready
    while read -r word; do
        new=
        for file in "$2"*; do
            case " $seen " in
            *" $file "*) ;;
            *) [ ! -e "$file" ] || { new="$new $file"; seen="$seen $file"; } ;;
            esac
        done
        [ -z "$new" ] || tail -q -n +1 -s 0.05 --pid="$guard" -f $new 2>/dev/null &
        # shellcheck disable=SC2086 # words
        for size in $([ -z "$seen" ] || stat -c %s $seen 2>/dev/null); do
            # On a separate line, wherever in a line of the file tail is.
            [ "$size" -le "$(($3 * 1024))" ] || printf '\nfabbench-agent: flooded\n'
        done
        [ "$word" != end ] || break
    done
    kill "$guard"
    wait
    ;;

relay) # print the requests of relay.sh, which mpirun calls, and pass the answers on standard input to it
    { mkdir -p "$folder/relay" && cd "$folder/relay"; } || fail no-room
    # An earlier one that lost its connection to fabbench would take requests.
    # shellcheck disable=SC2046 # words
    [ ! -e server ] || kill $(cat server) 2>/dev/null
    [ -p requests ] || mkfifo requests || fail no-room
    # A pipe that is open for reading and writing never blocks on its other end.
    exec 4<>requests
    echo ready
    show() { [ ! -e "$1" ] || echo "request ${1%.request} $(base64 <"$1" | tr -d '\n')"; }
    {
        for file in *.request; do show "$file"; done
        while read -r file <&4; do show "$file"; done
    } &
    echo "$$ $!" >server
    while read -r name answer; do
        if [ -p "$name.answers" ]; then printf '%s\n' "$answer" 1<>"$name.answers"; fi
    done
    kill "$!"
    ;;

ranks) # count the ranks
    grep -lzxF "FABBENCH_RANK=$token" /proc/[0-9]*/environ 2>/dev/null | wc -l
    ;;

stop) # end the programs; keep the rest
    end_programs "$token" || echo "left processes $(marked "$token" | tr '\n' ' ')"
    ;;

clean)
    [ -d "$folder" ] || exit 0
    kill "$(cat "$folder/keeper")" 2>/dev/null
    clean
    ;;
esac
