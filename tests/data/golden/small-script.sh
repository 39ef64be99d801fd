
hosts=()
while read -r host _; do
    case $host in '' | '#'*) ;; *) hosts+=("$host") ;; esac
done < <(tr -s ' ,' '\n' <<<"$* ${HOSTS:-}")
[ "${#hosts[@]}" -ge 2 ] || stop 3 "This needs 2 hosts, but there are ${#hosts[@]}: ${hosts[*]:-none}."
hosts=("${hosts[@]:0:2}")

reach() {
    local number=$1
    shift
    if [ "$number" = 0 ]; then
        $brief "$@"
        return
    fi
    $brief ssh -o BatchMode=yes -o ConnectTimeout=30 -o LogLevel=ERROR -o ServerAliveInterval=15 \
            -o ServerAliveCountMax=4 -- "${hosts[number]}" "$(quoted "$@")"
}

steps_1() { # tcp
    step "$1"/a a 20 ''
    server_0() {
        on 0 env fi_pingpong -B "${port}"
    }
    client_0() {
        on 1 env fi_pingpong -P "${port}" "${hosts[0]}"
    }
    pairs || return
}

case ${FABRIC:-all} in all | tcp) ;; *) stop 2 "FABRIC is $FABRIC"', and this script has tcp.' ;; esac
case ${EXECUTION:-} in '' | 000-tcp-r1) ;; *) stop 2 "This script has no execution $EXECUTION." ;; esac

install_traps
umask 077
make_base

execution 000-tcp-r1 tcp steps_1
check_signals
[ -n "$all_ok" ] || exit 4
