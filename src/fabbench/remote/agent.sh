# What fabbench keeps on a host for the time of a run, and how it ends there. POSIX sh, with coreutils,
# grep and util-linux's setsid.
#
#   sh agent MODE DIRECTORY TOKEN …
#
# Everything of a run lies in DIRECTORY, and every program of it has FABBENCH_JOB=TOKEN in its environment. `keep`
# ends it all by itself when nobody has beaten for long: a laptop that dies leaves nothing on the cluster.
set -u
umask 077
LC_ALL=C
export LC_ALL
mode=$1 folder=$2 token=$3
shift 3
keys=$HOME/.ssh/authorized_keys
# A link stays one.
keys=$(readlink -f "$keys" 2>/dev/null || echo "$keys")

# What went wrong with the agent itself, apart from whatever status its program has.
say() {
    echo "fabbench-agent: $1" >&2
    exit 120
}

# The agent's other programs: those that lost sight of fabbench would wait for it for ever.
end_agents() {
    # shellcheck disable=SC2046 # words
    kill $(grep -lzxF "FABBENCH_AGENT=$token" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | grep -vx "$$")
} 2>/dev/null

# One agent at a time, of all hosts that share a home. A lock that stays is left over, and taken over; where none
# can be made nothing can be written either. It says whose it is: who locked may have been killed since.
lock_keys() {
    tries=0
    until ln -s "$(locker)" "$keys.fabbench-lock" || [ ! -w "${keys%/*}" ] || [ "$tries" -gt 50 ]; do
        [ "$tries" -lt 50 ] || rm -rf "$keys.fabbench-lock"
        tries=$((tries + 1))
        sleep 0.1
    done
} 2>/dev/null

unlock_keys() {
    [ "$(readlink "$keys.fabbench-lock")" != "$(locker)" ] || rm -f "$keys.fabbench-lock"
} 2>/dev/null

locker() {
    echo "$token@$(uname -n)"
}

# The line is cut off where it is the last one, which needs no room. Else the file is replaced whole.
cut_key() {
    last=$(tail -n 1 "$keys")
    case $last in
    *" fabbench-$token") truncate -s "-$((${#last} + 1))" "$keys" ;;
    *" fabbench-$token+") truncate -s "-$((${#last} + 2))" "$keys" ;;
    *)
        cp -p "$keys" "$keys.fabbench-$token" &&
            { grep -v " fabbench-$token+\{0,1\}\$" "$keys"; [ $? -le 1 ]; } >"$keys.fabbench-$token" &&
            mv -f "$keys.fabbench-$token" "$keys"
        ;;
    esac || { rm -f "$keys.fabbench-$token"; return 1; }
}

# Of the runs that share what one of them has made, the last one removes it: another may just be adding its key.
drop_key() {
    result=0
    unlock_keys # our agents were ended, maybe in the middle of adding it
    if grep -q " fabbench-$token+\{0,1\}\$" "$keys" || [ -e "$folder/key-file-made" ]; then
        lock_keys
        if grep -q " fabbench-$token+\{0,1\}\$" "$keys"; then cut_key || result=1; fi
        if [ -e "$folder/key-file-made" ] && [ ! -s "$keys" ]; then rm -f "$keys"; fi
        unlock_keys
    fi 2>/dev/null
    if [ -e "$folder/key-folder-made" ]; then rmdir "$HOME/.ssh" 2>/dev/null; fi
    return "$result"
}

clean() {
    end_programs "$token" || echo "left processes $(marked "$token" | tr '\n' ' ')"
    end_agents
    drop_key || echo "left key $keys"
    rm -rf "$folder" || echo "left folder $folder"
}

# What programs print while there is no room is lost. `keep` looks for that all the time. Each time a new file:
# one that is written again has its own room.
room() {
    { echo . >"$folder/room.$$" && [ -s "$folder/room.$$" ]; } 2>/dev/null
    set -- "$?"
    rm -f "$folder/room.$$"
    return "$1"
}

there_was_room() {
    { room && [ ! -e "$folder/full" ]; } || say no-room
}

# What was printed before, a login shell said of itself.
echo "fabbench-agent: here"

case $mode in
start) # LEASE NAME…: seconds without a beat after which everything ends; variables to look for
    : >"$folder/beat"
    : >"$folder/kept"
    trap '' HUP
    setsid sh "$folder/agent" keep "$folder" "$token" "$1" </dev/null >/dev/null 2>&1 &
    echo "$!" >"$folder/keeper" || exit
    echo "user $(id -un)"
    echo "ssh ${SSH_CONNECTION:-}"
    shift
    for name; do
        eval "[ -z \"\${$name+set}\" ]" || echo "has $name"
    done
    ;;

keep) # LEASE
    silent=0
    while [ "$silent" -lt "$1" ]; do
        sleep 1
        [ -d "$folder" ] || exit 0
        room || : >"$folder/full"
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
    while read -r _; do : >"$folder/beat" && echo beat; done
    ;;

counters) fabbench_counters ;;

put) # PATH: standard input becomes a file
    mkdir -p "$(dirname "$1")" && cat >"$1"
    ;;

key) # the line on standard input, once: it ends in the token. Nothing of the file is lost, whatever happens.
    for _ in 1 2 3; do
        { mkdir -m 700 "$HOME/.ssh" && : >"$folder/key-folder-made"; } 2>/dev/null
        [ -d "$HOME/.ssh" ] || say no-key
        lock_keys
        # A run that has just ended may have removed what it had made.
        [ ! -d "$HOME/.ssh" ] || break
    done
    trap unlock_keys EXIT
    [ -e "$keys" ] || { : >"$folder/key-file-made"; : >"$keys"; } || say no-key
    # Root sees into what runs of others made, in homes of their own.
    for made in key-folder-made key-file-made; do
        for other in "${folder%/*}"/fabbench-*/"$made"; do
            [ ! -e "$other" ] || [ "$(stat -c %u "$other")" != "$(id -u)" ] || : >"$folder/$made"
        done
    done
    grep -q " fabbench-$token+\{0,1\}\$" "$keys" && exit
    line=$(cat)
    size=$(wc -c <"$keys") || say no-key
    # A last line without an end would swallow ours. The mark says whose the end is.
    if [ -z "$(tail -c 1 "$keys")" ]; then added="$line
"; else added="
$line+
"; fi
    printf %s "$added" >>"$keys" && [ "$(wc -c <"$keys")" -eq $((size + ${#added})) ] ||
        { truncate -s "$size" "$keys"; say no-key; }
    ;;

run) # KIB NAME COMMAND…: start a program that lives on without us, and print what it prints, up to so much
    kept=$1 name=$2
    shift 2
    # In a directory that every host has: hydra's ranks start in the one of mpirun.
    { cd "$folder" && mkdir -p steps && : >"steps/out.$name" && mkfifo "steps/pipe.$name"; } || say no-room
    trap '' HUP
    # The program does not wait for what is not kept. POSIX has ulimit count in units of 512 bytes.
    setsid sh -c 'trap "" HUP XFSZ; ulimit -f "$1"; cat; exec cat >/dev/null' sh "$((kept * 2))" \
        <"steps/pipe.$name" >"steps/out.$name" 2>/dev/null &
    reader=$!
    setsid "$@" >"steps/pipe.$name" 2>&1 </dev/null &
    program=$!
    cd steps || exit
    echo "$reader" >"reader.$name"
    echo "$program" >"pid.$name"
    # Once the program has ended and its output is kept, tail reads the rest, and ends too.
    tail -n +1 -s 0.05 --pid="$reader" -f "out.$name" 2>/dev/null &
    wait "$program"
    status=$?
    # What it left behind may hold its output open for ever.
    tries=0
    while kill -0 "$reader" 2>/dev/null && [ "$tries" -lt 20 ]; do sleep 0.05; tries=$((tries + 1)); done
    kill -s TERM -- "-$reader" 2>/dev/null
    echo "$status" >"status.$name"
    wait
    there_was_room
    exit "$status"
    ;;

follow) # NAME LINE: print what the program has printed from a line on, and will print
    { cd "$folder/steps" && reader=$(cat "reader.$1"); } || say not-started
    tail -n "+$2" -s 0.05 --pid="$reader" -f "out.$1" 2>/dev/null
    tries=0
    while [ ! -s "status.$1" ] && [ "$tries" -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    there_was_room
    { status=$(cat "status.$1") && [ -n "$status" ]; } || say no-status
    exit "$status"
    ;;

listens) # NAME PORT (in hexadecimal digits): wait until the program listens there, or has ended
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

watch) # IN PREFIX KIB: print the lines of files in a new directory; each line of input looks for new ones, and for
    # such as are too large; `end` ends
    { mkdir -p "$1" && cd "$1"; } || say no-room
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
            # A line of its own, wherever tail stands in one of the file's.
            [ "$size" -le "$(($3 * 1024))" ] || printf '\nfabbench-agent: flooded\n'
        done
        [ "$word" != end ] || break
    done
    kill "$guard"
    wait
    ;;

ranks) # how many there are
    grep -lzxF "FABBENCH_RANK=$token" /proc/[0-9]*/environ 2>/dev/null | wc -l
    ;;

stop) # end the programs; the rest stays
    end_programs "$token" || echo "left processes $(marked "$token" | tr '\n' ' ')"
    ;;

clean)
    [ -d "$folder" ] || exit 0
    kill "$(cat "$folder/keeper")" 2>/dev/null
    clean
    ;;
esac
