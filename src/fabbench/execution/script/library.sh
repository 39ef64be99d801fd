
# ---------------------------------------------------------------- the same in every script of fabbench

say() { printf 'fabbench: %s\n' "$*"; }

stop() { # STATUS TEXT
    say "$2" >&2
    exit "$1"
}

# Quotes words for a shell: between single quotes everything is literal.
quoted() {
    local word quote="'\\''"
    for word; do printf "'%s' " "${word//\'/$quote}"; done
}

# ---------------------------------------------------------------- variables that programs inherit

# Stops if one of them is not set.
inherit() { # NAME…
    local name
    for name; do
        [ -n "${!name+set}" ] || stop 2 "The variable $name is not set here. Export it, or render without --env."
        # shellcheck disable=SC2163 # the variable of that name
        export "$name"
    done
}

# Writes them to a file on every host that only this user can read: no command line has their values.
share() { # NAME…
    local name number text=
    for name; do text+="export $name=$(quoted "${!name}")"$'\n'; done
    touched=yes
    for number in "${!hosts[@]}"; do
        # shellcheck disable=SC2016 # text for another shell
        reach "$number" sh -c 'umask 077; mkdir -p "$1" && cat >"$1/environment"' sh "$base" <<<"$text" ||
            stop 3 "Cannot create the directory $base on ${hosts[number]}."
    done
}

# ---------------------------------------------------------------- hosts

# Every program that is measured has this in its environment, on every host: leftovers are found by it.
token=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
# Here, and under the same name on other hosts if a step needs it.
base=${FABBENCH_FOLDER:-/tmp}/fabbench-$token
folder=$base
touched=

# Runs a program that ends with the step: on NUMBER WORD…
on() {
    local number=$1
    shift
    "$through" "$number" env FABBENCH_JOB="$token" "$@"
}
# The function that starts it; containers have their own.
through=reach
# Words that precede a command that reaches a host, to limit its time.
brief=
# A process that watches every host, if there is one.
keeper=

# Runs a program on all hosts at once. Its output is in host.NUMBER, and the hosts where it failed are in `failing`.
run_on_hosts() {
    local number started=()
    failing=()
    for number in "${!hosts[@]}"; do
        reach_with_retry "$number" "$@" </dev/null >"$base/host.$number" &
        started+=("$!")
    done
    for number in "${!hosts[@]}"; do await "${started[number]}" || failing+=("$number"); done
    [ "${#failing[@]}" = 0 ]
}
failing=()

# Runs a program on a host. Retries if DNS has lost the host's name for a moment, as when its node comes back.
name_lost='Temporary failure in name resolution'
reach_with_retry() { # NUMBER WORD…
    local status until=$((SECONDS + 15))
    while :; do
        : >"$base/error.$1"
        "${by:-reach}" "$@" 2>>"$base/error.$1"
        status=$?
        if [ "$status" = 0 ] || [ "$SECONDS" -ge "$until" ] || ! grep -qF "$name_lost" "$base/error.$1"; then
            return "$status"
        fi
        sleep 1
    done
}

# The same, and prints its output, host by host.
everywhere() {
    local number status=0
    run_on_hosts "$@" || status=1
    for number in "${!hosts[@]}"; do cat "$base/host.$number" "$base/error.$number"; done
    return "$status"
}

# Stops if a host lacks one of these: directories, which end in a slash, and programs.
require() {
    local answers
    # shellcheck disable=SC2016 # text for another shell
    by=$through everywhere sh -c 'lacks=
        for path; do
            case $path in
            */) [ -d "$path" ] || lacks="Directory not found: ${path%/} on $(uname -n)." ;;
            *) [ -x "$path" ] || lacks="Not found: $path on $(uname -n). Pass its directory with --bin-dir." ;;
            esac
            [ -z "$lacks" ] || { echo "$lacks"; exit 1; }
        done' sh "$@" >"$base/required" || {
        # srun prints more, which does not matter; if ssh fails there is nothing else.
        answers=$(grep -E '^(Not found|Directory not found): ' "$base/required" || cat "$base/required")
        stop 3 "${answers//$'\n'/ } Nothing was started."
    }
    rm -f "$base/required"
}

# Creates the step's directory with these files: prepare NAME TEXT NAME TEXT…
prepare() {
    touched=yes
    everywhere sh -c 'umask 077; mkdir -p "$1" && cd "$1" || exit
        shift
        while [ "$#" -gt 0 ]; do printf %s "$2" >"$1" || exit; shift 2; done' sh "$folder" "$@"
}

# Debug file of ranks on this host → how many of its lines were printed.
declare -A shown=()

# Whether files, individually or together, are larger than what is kept: too_large FILE…
too_large() {
    local size rest
    while read -r size rest; do
        [ "$size" -le "$longest_output" ] || return 0
    done < <(wc -c -- "$@" 2>/dev/null)
    return 1
}

# Checks every second whether ranks on this host, or the sides of pairs, have printed more than is kept.
flooded() {
    [ "$SECONDS" != "$size_checked" ] || return 1
    size_checked=$SECONDS
    too_large "$folder"/debug.* "$base"/[0-9]*.server "$base"/[0-9]*.client
}
size_checked=0

# Empty if no ranks run on this host, as in the launcher of an MPIJob: then the first of the others is read.
ranks_here=yes

# Prints the whole lines that ranks on this host have written to their debug files since the last time.
print_debug() {
    local count file
    if [ -z "$ranks_here" ]; then
        print_debug_there
        return
    fi
    ! too_large "$folder"/debug.* || return
    while read -r count file; do
        case $file in debug.*) ;; *) continue ;; esac
        [ "$count" -gt "${shown[$file]:-0}" ] || continue
        sed -n "$((${shown[$file]:-0} + 1)),${count}p" "$folder/$file"
        shown[$file]=$count
    done < <(cd "$folder" 2>/dev/null && wc -l debug.* 2>/dev/null)
}

# The same on the first host. How much of a file was printed is kept in another file there.
print_debug_there() {
    # shellcheck disable=SC2016 # text for another shell
    brief='timeout -k 1 10' reach 0 sh -c 'cd "$1" 2>/dev/null || exit 0
        for file in debug.*; do
            [ -f "$file" ] && [ "$(wc -c <"$file")" -le "$2" ] || continue
            from=$(cat "shown.$file" 2>/dev/null || echo 0) to=$(wc -l <"$file")
            [ "$to" -gt "$from" ] || continue
            sed -n "$((from + 1)),${to}p" "$file"
            echo "$to" >"shown.$file"
        done' sh "$folder" "$longest_output" </dev/null 2>/dev/null
}

# Prints the rest of those files, and removes them.
print_debug_rest_there() {
    # shellcheck disable=SC2016 # text for another shell
    brief='timeout -k 1 60' reach 0 sh -c 'cd "$1" 2>/dev/null || exit 0
        for file in shown.*; do
            [ -f "$file" ] || continue
            tail -n "+$(($(cat "$file") + 1))" "${file#shown.}" | head -c "$2" | grep -a ""
            rm -f "$file" "${file#shown.}"
        done' sh "$folder" "$longest_output" </dev/null 2>/dev/null
}

# Prints what the ranks wrote to their debug files, and removes the step's directory.
collect() {
    local file number
    for file in "${!shown[@]}"; do
        tail -n "+$((shown[$file] + 1))" "$folder/$file" 2>/dev/null | head -c "$longest_output" | grep -a ''
        rm -f "$folder/$file"
    done
    shown=()
    [ -n "$ranks_here" ] || print_debug_rest_there
    run_on_hosts sh -c 'cd "$1" 2>/dev/null || exit 0
        grep -ah "" debug.* 2>/dev/null | head -c "$2"
        cd / && rm -rf "$1"' sh "$folder" "$longest_output" || true
    for number in "${!hosts[@]}"; do cat "$base/host.$number"; done
    # Not ssh's own message: whether the ranks ended well does not depend on reaching this host now.
    for number in "${failing[@]+"${failing[@]}"}"; do
        say "The debug output of ranks on ${hosts[number]} is lost: $(tail -n 1 "$base/error.$number")"
    done
}

# On this host too, which need not be one of the hosts: the program that started the ranks may have much left to print.
end_all() {
    [ -n "$touched" ] || return 0
    everywhere sh -c "$end_programs" sh "$token"
    sh -c "$end_programs" sh "$token"
}

finish() {
    local status=$? number started=()
    trap - EXIT
    trap '' TERM INT HUP
    exec 3<&-
    end_all >/dev/null 2>&1
    [ -z "$keeper" ] || kill "$keeper" 2>/dev/null
    [ -z "$guard" ] || kill -KILL "$guard" 2>/dev/null
    if [ -n "$touched" ]; then
        for number in "${!hosts[@]}"; do
            reach "$number" rm -rf "$base" </dev/null >/dev/null 2>&1 &
            started+=("$!")
        done
        for number in "${!hosts[@]}"; do wait "${started[number]}"; done
    fi
    rm -rf "$base"
    exit "$status"
}

# Outlives the script if no trap can run (after kill -9), and then does what `finish` does, on every host, since it
# does not know which of them were reached.
watch_over() {
    local parent=$$
    trap '' TERM INT HUP
    exec 4<>"$base/guard"
    while [ "$parent" = "$$" ]; do
        # Only waits, without starting a program.
        IFS= read -r -t 1 -u 4
        read -r _ _ _ parent _ <"/proc/$BASHPID/stat"
    done
    touched=yes
    finish
}
guard=

make_base() {
    if ! { mkdir "$base" && mkfifo "$base/out" "$base/guard"; }; then stop 3 "Cannot create the directory $base."; fi
    start_guard
}

# In its own process group, since kill -9 may hit all of this one.
start_guard() {
    set -m
    watch_over </dev/null >/dev/null 2>&1 &
    guard=$!
    disown
    set +m
}

# A trap only records the signal, which is acted on when nothing else is running: bash 5.2 crashes if it is in read.
install_traps() {
    trap finish EXIT
    trap 'signal=TERM number_of_signal=15' TERM
    trap 'signal=INT number_of_signal=2' INT
    trap 'signal=HUP number_of_signal=1' HUP
}
signal=
number_of_signal=0

check_signals() {
    [ -n "$signal" ] || return 0
    trap '' TERM INT HUP
    if [ -n "$open_step" ]; then
        print_pair
        say "The script was stopped by SIG$signal in step ${open_step#*/}."
        end '?'
    else
        say "The script was stopped by SIG$signal."
    fi
    exit "$((128 + number_of_signal))"
}

await() { # PROCESS: waits for it even if a signal interrupts the wait
    local status
    while :; do
        wait "$1"
        status=$?
        if [ "$status" -le 128 ] || ! kill -0 "$1" 2>/dev/null; then return "$status"; fi
    done
}

# ---------------------------------------------------------------- steps

open_step=
ids=() labels=() facts=() ports=() files=()
limit=0
turn=0
failed=0

step() { # ID LABEL SECONDS FACTS
    check_signals
    ids+=("$1") labels+=("$2") facts+=("$4")
    limit=$3
    count=$((count + 1))
    folder=$base/$count
}
count=0

begin() {
    open_step=${ids[turn]}
    # Status 74: the output cannot be written, as on a full disk, so there is no point in going on.
    printf '%sbegin %s\n' "$sign" "$open_step${facts[turn]:+ ${facts[turn]}}" || exit 74
}

end() { # STATUS
    printf '%send %s %s\n' "$sign" "$open_step" "$1" || exit 74
    open_step=
    [ "$1" = 0 ] || failed=1
}

# Clears the steps that are over. Fails if one of them did.
over() {
    ids=() labels=() facts=() ports=()
    turn=0
    [ "$failed" = 0 ]
}

# The program that prints a host's NIC counters; empty if they are not read.
snapshot=

# Prints those of all hosts; base64 -d | gunzip decodes them. `packed` is empty for a host that does not answer in time.
nics() { # EXECUTION before|after FACTS
    local number text
    brief='timeout -k 1 10' run_on_hosts sh -c "$snapshot"
    for number in "${!hosts[@]}"; do
        text=$(grep -aE '^(proc|sys)/' "$base/host.$number" | { gzip | base64; } 2>/dev/null | tr -d '\n')
        printf '%snics %s when=%s number=%s host=%s %s packed=%s\n' \
            "$sign" "$1" "$2" "$number" "${hosts[number]}" "$3" "$text"
    done
}

execution() { # ID CONFIGURATION STEPS WHAT-NICS-ARE-JUDGED-BY
    local status
    case ${FABRIC:-all} in all | "$2") ;; *) return ;; esac
    case ${EXECUTION:-$1} in "$1") ;; *) return ;; esac
    if [ -n "${DONE_FILE:-}" ] && grep -qxF -e "$1" "$DONE_FILE" 2>/dev/null; then return; fi
    check_signals
    failed=0
    current=$1
    [ -z "$snapshot" ] || nics "$1" before "$4"
    "$3" "$1"
    status=$?
    [ -z "$snapshot" ] || nics "$1" after "$4"
    if [ "$status" = 0 ]; then
        [ -z "${DONE_FILE:-}" ] || printf '%s\n' "$1" >>"$DONE_FILE"
    else
        all_ok=
    fi
}
all_ok=yes

# Every five seconds, prints new debug lines and checks whether DONE_FILE names the current execution: then the reader
# of this output needs no more of it.
cancelled() {
    [ "$((SECONDS - last_look))" -ge 5 ] || return
    last_look=$SECONDS
    print_debug
    [ -n "${DONE_FILE:-}" ] && grep -qxF -e "$current" "$DONE_FILE" 2>/dev/null
}
last_look=0
enough='fabbench needs no more of it'

# ---------------------------------------------------------------- ranks on all hosts

# Runs a program, and ends it if it is silent or takes too long: ranks SILENCE WORD…
ranks() {
    local silence=$1 program status='' why='' line='' part='' heard deadline printed=0 lines=0
    shift
    begin
    if ! prepare "${files[@]+"${files[@]}"}"; then
        say "Cannot create the directory $folder on every host."
        end 1
        over
        return
    fi
    (
        export FABBENCH_JOB="$token" TMPDIR="$base"
        "$@"
    ) </dev/null >"$base/out" 2>&1 &
    program=$!
    exec 3<"$base/out"
    heard=$SECONDS deadline=$((SECONDS + limit))
    while :; do
        if IFS= read -r -t 0.5 -u 3 line; then
            printf '%s\n' "$part$line"
            printed=$((printed + ${#part} + ${#line} + 1)) lines=$((lines + 1))
            part='' heard=$SECONDS
        elif [ "$?" -le 128 ]; then
            break
        elif [ -n "$line" ]; then
            part+=$line heard=$SECONDS
            line=
            # A line without end is passed on in pieces, each as a line.
            if [ "${#part}" -gt 1000000 ]; then
                printf '%s\n' "$part"
                printed=$((printed + ${#part})) lines=$((lines + 1))
                part=
            fi
        elif ! kill -0 "$program" 2>/dev/null; then
            break
        fi
        check_signals
        if [ "$SECONDS" -ge "$deadline" ]; then
            why=$time_up
        elif [ "$silence" -gt 0 ] && [ "$((SECONDS - heard))" -ge "$silence" ]; then
            why="$silent $silence s"
        elif [ "$printed" -gt "$longest_output" ] || [ "$lines" -gt "$max_lines" ] || flooded; then
            why=$too_much
        elif cancelled; then
            why=$enough
        fi
        if [ -n "$why" ]; then
            end_all
            deadline=$((SECONDS + 5))
            while [ "$SECONDS" -lt "$deadline" ] && IFS= read -r -t 1 -u 3 line; do
                printf '%s\n' "$part$line"
                part=
            done
            break
        fi
    done
    [ -z "$part$line" ] || printf '%s\n' "$part$line"
    await "$program"
    status=$?
    exec 3<&-
    [ "$status" = 0 ] || end_all
    collect
    # A signal to the whole job ends the program too.
    check_signals
    if [ -n "$why" ]; then
        say "${labels[0]} was aborted: $why."
        status='?'
    fi
    end "$status"
    over
}

# ---------------------------------------------------------------- pairs of a server and a client

status_of() { # NUMBER ROLE: prints nothing while it runs
    cat "$base/$1.$2.status" 2>/dev/null
}

side() { # NUMBER ROLE: starts the function ROLE_NUMBER
    # shellcheck disable=SC2034 # used in the function
    local port=${ports[$1]}
    {
        "$2_$1" </dev/null >"$base/$1.$2" 2>&1
        echo "$?" >"$base/$1.$2.status"
    } &
    sides_started+=("$!")
}

# Picks a port at random; if it is taken, the server reports it.
pick_port() { # NUMBER
    local other
    ports[$1]=$((32768 + (RANDOM * 32768 + RANDOM) % 28000))
    for other in "${!ports[@]}"; do
        [ "$other" = "$1" ] || [ "${ports[other]}" != "${ports[$1]}" ] || pick_port "$1"
    done
}

start_server() { # NUMBER
    pick_port "$1"
    rm -f "$base/$1".*
    side "$1" server
    # No connection is made: fi_pingpong takes the first connection for its client.
    reach 0 env FABBENCH_JOB="$token" sh -c 'port=$(printf ":%04X" "$1") tries=0
        while [ "$tries" -lt "$2" ]; do
            cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "$port [0-9A-F]*:0000 0A " && exit
            tries=$((tries + 1))
            sleep 0.1
        done
        exit 1' sh "${ports[$1]}" "$((limit * 10))" </dev/null >/dev/null 2>&1 && : >"$base/$1.ready" &
    sides_started+=("$!")
}

# Waits until every server listens, or one of them has ended.
until_ready() {
    local number deadline=$((SECONDS + limit)) missing
    while [ "$SECONDS" -lt "$deadline" ]; do
        check_signals
        missing=
        for number in "${!ids[@]}"; do
            [ -z "$(status_of "$number" server)" ] || return
            [ -e "$base/$number.ready" ] || missing=yes
        done
        [ -n "$missing" ] || return
        if flooded; then
            why=$too_much late=
            for number in "${!ids[@]}"; do sides[number]='server: '; done
            return
        fi
        sleep 0.1
    done
    why=$not_ready
}

# Whether a pair has failed whose server reports that its port is taken.
port_taken() {
    local number
    for number in "${!statuses[@]}"; do
        if [ "${statuses[number]}" != 0 ] && [ "$(status_of "$number" server)" ] &&
            grep -qF -e "$port_taken" "$base/$number.server"; then
            return
        fi
    done
    return 1
}

# Follows both sides of every pair until they end. A side left alone gets $partner_s seconds after a failure of the
# other, $closing_s after it ended well.
until_over() {
    local number one other running patience deadline=$((SECONDS + limit)) since=()
    while :; do
        check_signals
        running=
        for number in "${!ids[@]}"; do
            one=$(status_of "$number" server) other=$(status_of "$number" client)
            [ "${one:-0}" = 0 ] || statuses[number]=${statuses[number]:-$one}
            [ "${other:-0}" = 0 ] || statuses[number]=${statuses[number]:-$other}
            if [ -n "$one" ] && [ -n "$other" ]; then
                statuses[number]=${statuses[number]:-0}
                [ "${statuses[number]}" = 0 ] || return
                continue
            fi
            running=yes
            if [ -n "$one$other" ]; then
                since[number]=${since[number]:-$SECONDS}
                patience=$closing_s
                [ -z "${statuses[number]:-}" ] || patience=$partner_s
                [ "$((SECONDS - since[number]))" -lt "$patience" ] || why=$ran_on
            fi
        done
        [ -n "$running" ] || return
        if flooded; then why=$too_much; fi
        if [ -n "$why" ]; then
            late=
            name_sides
            return
        fi
        if cancelled; then
            why=$enough late=
            return
        fi
        [ "$SECONDS" -lt "$deadline" ] || break
        sleep 0.1
    done
    why=$time_up
    name_sides
}

name_sides() {
    local number
    for number in "${!ids[@]}"; do sides[number]="$(running_sides "$number"): "; done
}

running_sides() { # NUMBER
    local role names=
    for role in server client; do
        [ -n "$(status_of "$1" "$role")" ] || names+="${names:+ and }$role"
    done
    printf '%s' "$names"
}

# Prints the output of the current pair.
print_pair() {
    local role
    for role in server client; do
        if [ -e "$base/$turn.$role" ]; then
            # grep ends the last line, which would otherwise swallow the next marker.
            head -c "$longest_output" "$base/$turn.$role" | sed "s/^/[fabbench:$role] /" | grep -a ''
        fi
    done
}

# Waits until both sides and the check for the server have ended. Never waits for all children: bash 5.2 may then wait
# for disowned ones too, which end with the job.
until_ended() {
    local process
    for process in "${sides_started[@]+"${sides_started[@]}"}"; do await "$process"; done
    sides_started=()
}

# Starts the servers and, once all are ready, the clients, and follows them until they end.
try_pairs() {
    local number early
    why='' late=" after $limit s" statuses=() sides=()
    for number in "${!ids[@]}"; do start_server "$number"; done
    until_ready
    for number in "${!ids[@]}"; do
        early=$(status_of "$number" server)
        # A server has no reason to end before its client comes.
        [ -z "$early" ] || statuses[number]=$((early ? early : 1))
    done
    if [ -z "$why" ] && [ "${#statuses[@]}" = 0 ]; then
        for number in "${!ids[@]}"; do side "$number" client; done
        until_over
    fi
}

# Runs the pairs of all pending steps, and prints them one after another.
pairs() {
    local number tries why late statuses=() sides=() sides_started=()
    touched=yes
    begin
    for ((tries = 1; ; tries++)); do
        try_pairs
        # If another program listens on a server's port, this shows only when the clients run.
        if ! port_taken || [ "$tries" -ge "$ports_tried" ]; then break; fi
        end_all
        until_ended
    done
    for number in "${!ids[@]}"; do
        if [ -z "$(status_of "$number" server)" ] || [ -z "$(status_of "$number" client)" ]; then
            end_all
            break
        fi
    done
    until_ended
    check_signals
    for number in "${!ids[@]}"; do
        turn=$number
        [ -n "$open_step" ] || begin
        print_pair
        if [ -n "$why" ] && [ -z "${statuses[number]:-}" ]; then
            say "Step ${labels[number]} was aborted$late: ${sides[number]:-}$why."
        fi
        end "${statuses[number]:-?}"
    done
    rm -f "$base"/[0-9]*.*
    over
}
