"""Made by fabbench 0.1.0: nccl on efa and tcp, 3 repeats, 2 hosts. Needs modal 1.6.0 or later.

    modal run --quiet FILE >LOG

runs every arm; --fabric efa runs that one alone. fabbench parse and fabbench compare read the log.
"""

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import modal

IMAGE = "public.ecr.aws/hpc-cloud/nccl-tests:cuda13.0.2-efa1.48.0-ofiv1.19.0-ncclv2.30.4-1-testsv2.18.3"
NODES = 2
GPU = "H100!:8"
CLOUD = "aws"
OPTIONS = {"efa_enabled": True}
RDMA = True
TIMEOUT_S = 11580
WAIT_S = 900
PORT = 2222  # of sshd
INTERFACE = ""  # between the containers; empty: the one with their addresses
FOR_NCCL = ("NCCL_HOSTID", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
SIOCGIFADDR = 0x8915

image = (
    modal.Image.from_registry(IMAGE, add_python="3.12")
    .entrypoint([])
    .apt_install("libhwloc15", "libnl-route-3-200", "openssh-server")
)
app = modal.App("fabbench-nccl", image=image)


@app.function(gpu=GPU, cloud=CLOUD, experimental_options=OPTIONS, timeout=TIMEOUT_S)
@modal.clustered(size=NODES, rdma=RDMA)
def measure(fabric: str, board: modal.Dict) -> int:
    """Run in every container at once: rank 0 measures, the others are reached by its ssh.

    Gives the exit status of the script. `board` is where containers leave each other public keys.
    """
    cluster = modal.Cluster.from_context()
    rank, addresses = cluster.container_rank(), cluster.container_ips(family="ipv4")
    # Should the containers be preempted, they begin anew as another cluster.
    notes = Notes(board, cluster.object_id)
    if NODES > 1:
        meet(notes, rank, addresses)
    if rank > 0:
        notes.wait("over", TIMEOUT_S)
        return 0
    try:
        return run(fabric, addresses)
    finally:
        notes.leave("over", "yes")


class Notes:
    """What the containers of one cluster tell each other."""

    def __init__(self, board: modal.Dict, cluster: str) -> None:
        self.board, self.cluster = board, cluster

    def leave(self, name: str, text: str) -> None:
        """Leave a note."""
        self.board[f"{self.cluster} {name}"] = text

    def wait(self, name: str, seconds: float) -> str:
        """Wait for a note."""
        deadline = time.monotonic() + seconds
        while (text := self.board.get(f"{self.cluster} {name}")) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"No container has told {name!r} within {seconds:.0f} s.")
            time.sleep(1)
        return text


def meet(notes: Notes, rank: int, addresses: list[str]) -> None:
    """Let rank 0 in by ssh, everywhere. Private keys stay where they are made."""
    folder = Path.home() / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    # What modal sets in its own process for NCCL; ranks that ssh starts would not have it.
    settings = (f"{name}={os.environ[name]}\n" for name in FOR_NCCL if name in os.environ)
    (Path.home() / ".nccl.conf").write_text("".join(settings))
    if rank == 0:
        notes.leave("login", made_key(folder / "login"))
    (folder / "allowed").write_text(notes.wait("login", WAIT_S))
    host_key = made_key(folder / "host")
    serve(folder, addresses[rank])
    notes.leave(str(rank), host_key)
    if rank == 0:
        keys = (notes.wait(str(number), WAIT_S) for number in range(NODES))
        known = (f"[{address}]:{PORT} {key}" for address, key in zip(addresses, keys, strict=True))
        (folder / "known").write_text("".join(known))
        (folder / "config").write_text(
            f"Host *\nPort {PORT}\nUser root\nBatchMode yes\nIdentitiesOnly yes\n"
            f"IdentityFile {folder}/login\nUserKnownHostsFile {folder}/known\n"
        )


def made_key(file: Path) -> str:
    """Make a pair of keys; gives the public one."""
    file.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)
    return file.with_suffix(".pub").read_text()


def serve(folder: Path, address: str) -> None:
    """Start sshd."""
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    settings = {
        "ListenAddress": address,
        "Port": PORT,
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "allowed",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
        "MaxStartups": 200,
        "PidFile": "none",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["/usr/sbin/sshd", "-f", "/dev/null", *options], check=True)


def run(fabric: str, addresses: list[str]) -> int:
    """Run the script on the first container; gives its exit status."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    environment |= {"HOSTS": " ".join(addresses), "FABRIC": fabric}
    if NODES > 1:
        # Of the others, some lead nowhere: NCCL's and MPI's own choice may be one of them.
        interface = INTERFACE or interface_of(addresses[0])
        environment |= {"FABBENCH_INTERFACE": interface, "OMPI_MCA_oob_tcp_if_include": interface}
        environment |= {"PRTE_MCA_prte_if_include": interface}
    with tempfile.NamedTemporaryFile("w", prefix="fabbench-", suffix=".sh") as script:
        script.write(SCRIPT)
        script.flush()
        words = ["bash", script.name]
        return subprocess.run(words, env=environment, stderr=subprocess.STDOUT, check=False).returncode


def interface_of(address: str) -> str:
    """Name the network interface that has an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    raise RuntimeError(f"No interface has the address {address}: fabbench render --interface names it.")


@app.local_entrypoint()
def main(fabric: str = "all") -> None:
    """Run all arms, or one of them."""
    with modal.Dict.ephemeral() as board:
        sys.exit(measure.remote(fabric, board))


SCRIPT = r"""#!/usr/bin/env bash
# Made by fabbench 0.1.0: nccl on efa and tcp, 3 repeats, 2 hosts.
# FABRIC=efa runs that arm alone. fabbench parse reads what this prints.
# shellcheck disable=SC1003,SC2016,SC2034,SC2317,SC2329 # text for other shells; called by name
set -u

# ---------------------------------------------------------------- the same in every script of fabbench's

say() { printf 'fabbench: %s\n' "$*"; }

stop() { # STATUS TEXT
    say "$2" >&2
    exit "$1"
}

# Words for a shell: between single quotes everything stays as it is.
quoted() {
    local word quote="'\\''"
    for word; do printf "'%s' " "${word//\'/$quote}"; done
}

# ---------------------------------------------------------------- hosts

# Whatever is measured has this in its environment, on every host: what is left of it is found by it.
token=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
# Here, and under the same name on other hosts where a step needs it.
base=${FABBENCH_FOLDER:-/tmp}/fabbench-$token
folder=$base
touched=

# Runs a program that is to be ended with the step: on NUMBER WORD…
on() {
    local number=$1
    shift
    "$through" "$number" env FABBENCH_JOB="$token" "$@"
}
# What starts it; containers have a function of their own.
through=reach
# Words before whatever reaches a host, where it is not to take long.
brief=
# A process that stands guard on every host, where there is one.
keeper=

# Runs a program on all hosts at once. What it printed is in host.NUMBER.
ask() {
    local number failed=0 started=()
    for number in "${!hosts[@]}"; do
        "${by:-reach}" "$number" "$@" </dev/null >"$base/host.$number" 2>&1 &
        started+=("$!")
    done
    for number in "${!hosts[@]}"; do await "${started[number]}" || failed=1; done
    return "$failed"
}

# The same, and prints what it printed, host after host.
everywhere() {
    local number failed=0
    ask "$@" || failed=1
    for number in "${!hosts[@]}"; do cat "$base/host.$number"; done
    return "$failed"
}

# Stops where a host lacks one of these: folders, which end in a slash, and programs.
require() {
    local told
    # shellcheck disable=SC2016 # text for another shell
    by=$through everywhere sh -c 'lacks=
        for path; do
            case $path in
            */) [ -d "$path" ] || lacks="There is no folder ${path%/} on $(uname -n)." ;;
            *) [ -x "$path" ] || lacks="There is no $path on $(uname -n); --bin-dir names another folder." ;;
            esac
            [ -z "$lacks" ] || { echo "$lacks"; exit 1; }
        done' sh "$@" >"$base/required" || {
        # srun says more, and it is not what matters; without ssh there is nothing else.
        told=$(grep '^There is no ' "$base/required" || cat "$base/required")
        stop 3 "${told//$'\n'/ } Nothing was started."
    }
    rm -f "$base/required"
}

# Makes the step's folder, with these files: prepare NAME TEXT NAME TEXT…
prepare() {
    touched=yes
    everywhere sh -c 'umask 077; mkdir -p "$1" && cd "$1" || exit
        shift
        while [ "$#" -gt 0 ]; do printf %s "$2" >"$1" || exit; shift 2; done' sh "$folder" "$@"
}

# File of ranks on this host → how many of its lines were printed.
declare -A shown=()

# Prints what ranks on this host have written into files of their own since the last time: whole lines.
news() {
    local count file
    while read -r count file; do
        case $file in debug.*) ;; *) continue ;; esac
        [ "$count" -gt "${shown[$file]:-0}" ] || continue
        sed -n "$((${shown[$file]:-0} + 1)),${count}p" "$folder/$file"
        shown[$file]=$count
    done < <(cd "$folder" 2>/dev/null && wc -l debug.* 2>/dev/null)
}

# Prints what the ranks wrote into files of their own, and removes the step's folder.
collect() {
    local file
    for file in "${!shown[@]}"; do
        tail -n "+$((shown[$file] + 1))" "$folder/$file" 2>/dev/null | grep -a ''
        rm -f "$folder/$file"
    done
    shown=()
    everywhere sh -c 'cd "$1" 2>/dev/null || exit 0
        grep -ah "" debug.* 2>/dev/null
        cd / && rm -rf "$1"' sh "$folder"
}

# SIGTERM, and SIGKILL after two seconds. libfabric leaves shared memory behind where its programs are killed.
end_programs() {
    [ -z "$touched" ] || everywhere sh -c 'ended=
        tries=0
        while [ "$tries" -lt 60 ]; do
            pids=$(grep -lzxF "FABBENCH_JOB=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
            [ -n "$pids" ] || break
            case $tries in
            0) kill -TERM $pids; kill -CONT $pids; ended=$pids ;;
            [2345][0-9]) kill -KILL $pids; ended="$ended $pids" ;;
            esac 2>/dev/null
            tries=$((tries + 1))
            sleep 0.1
        done
        for pid in $ended; do rm -f /dev/shm/"$pid":*; done' sh "$token"
}

finish() {
    local status=$? number
    trap - EXIT
    trap '' TERM INT HUP
    exec 3<&-
    end_programs >/dev/null 2>&1
    [ -z "$keeper" ] || kill "$keeper" 2>/dev/null
    if [ -n "$touched" ]; then
        for number in "${!hosts[@]}"; do reach "$number" rm -rf "$base" </dev/null >/dev/null 2>&1 & done
        wait
    fi
    rm -rf "$base"
    exit "$status"
}

# A signal is only taken note of, and heeded where nothing else goes on: bash 5.2 crashes where it is within read.
heed() {
    [ -n "$signal" ] || return 0
    trap '' TERM INT HUP
    if [ -n "$begun" ]; then
        give
        say "The script was stopped by SIG$signal in step ${begun#*/}."
        end '?'
    else
        say "The script was stopped by SIG$signal."
    fi
    exit "$((128 + number_of_signal))"
}
signal=
number_of_signal=0

await() { # PROCESS: also when a signal comes in between
    local status
    while :; do
        wait "$1"
        status=$?
        if [ "$status" -le 128 ] || ! kill -0 "$1" 2>/dev/null; then return "$status"; fi
    done
}

# ---------------------------------------------------------------- steps

begun=
ids=() labels=() facts=() ports=() files=()
limit=0
turn=0
failed=0

step() { # ID LABEL SECONDS FACTS
    heed
    ids+=("$1") labels+=("$2") facts+=("$4")
    limit=$3
    count=$((count + 1))
    folder=$base/$count
}
count=0

begin() {
    begun=${ids[turn]}
    # Status 74: nobody reads what is printed, as on a disk that is full; so nothing more is worth its time.
    printf '#@fabbench begin %s\n' "$begun${facts[turn]:+ ${facts[turn]}}" || exit 74
}

end() { # STATUS
    printf '#@fabbench end %s %s\n' "$begun" "$1" || exit 74
    begun=
    [ "$1" = 0 ] || failed=1
}

# Forgets the steps that are over. Fails where one of them did.
over() {
    ids=() labels=() facts=() ports=()
    turn=0
    [ "$failed" = 0 ]
}

# The program that prints what a host's NICs have counted; empty: they are not asked.
snapshot=

# Prints that of all hosts. base64 -d | gunzip shows it. Of a host that does not tell in time nothing is packed.
nics() { # TRIAL before|after FACTS
    local number text
    brief='timeout -k 1 10' ask sh -c "$snapshot"
    for number in "${!hosts[@]}"; do
        text=$(grep -aE '^(proc|sys)/' "$base/host.$number" | { gzip | base64; } 2>/dev/null | tr -d '\n')
        printf '#@fabbench nics %s when=%s number=%s host=%s %s packed=%s\n' \
            "$1" "$2" "$number" "${hosts[number]}" "$3" "$text"
    done
}

trial() { # ID ARM STEPS WHAT-NICS-ARE-JUDGED-BY
    local status
    case ${FABRIC:-all} in all | "$2") ;; *) return ;; esac
    case ${TRIAL:-$1} in "$1") ;; *) return ;; esac
    if [ -n "${DONE_FILE:-}" ] && grep -qxF -e "$1" "$DONE_FILE" 2>/dev/null; then return; fi
    heed
    failed=0
    current=$1
    [ -z "$snapshot" ] || nics "$1" before "$4"
    "$3" "$1"
    status=$?
    [ -z "$snapshot" ] || nics "$1" after "$4"
    if [ "$status" = 0 ]; then
        [ -z "${DONE_FILE:-}" ] || printf '%s\n' "$1" >>"$DONE_FILE"
    else
        all_well=
    fi
}
all_well=yes

# Looks every five seconds what is new. Whether DONE_FILE names the trial that goes on: whoever follows it has
# seen enough.
given_up() {
    [ "$((SECONDS - looked))" -ge 5 ] || return
    looked=$SECONDS
    news
    [ -n "${DONE_FILE:-}" ] && grep -qxF -e "$current" "$DONE_FILE" 2>/dev/null
}
looked=0
enough='fabbench needs no more of it'

# ---------------------------------------------------------------- ranks on all hosts

# Runs a program, and ends it when it is silent or takes too long: ranks SILENCE WORD…
ranks() {
    local silence=$1 program status='' why='' line='' part='' heard deadline
    shift
    begin
    if ! prepare "${files[@]+"${files[@]}"}"; then
        say "The folder $folder cannot be made on every host."
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
            part='' heard=$SECONDS
        elif [ "$?" -le 128 ]; then
            break
        elif [ -n "$line" ]; then
            part+=$line heard=$SECONDS
            line=
        elif ! kill -0 "$program" 2>/dev/null; then
            break
        fi
        heed
        if [ "$SECONDS" -ge "$deadline" ]; then
            why='it had not ended when its time was up'
        elif [ "$silence" -gt 0 ] && [ "$((SECONDS - heard))" -ge "$silence" ]; then
            why="nothing was printed for $silence s"
        elif given_up; then
            why=$enough
        fi
        if [ -n "$why" ]; then
            end_programs
            while IFS= read -r -t 1 -u 3 line; do
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
    [ "$status" = 0 ] || end_programs
    collect
    # A signal for all of a job ends the program too.
    heed
    if [ -n "$why" ]; then
        say "${labels[0]} was ended: $why."
        status='?'
    fi
    end "$status"
    over
}

# ---------------------------------------------------------------- pairs of a server and a client

status_of() { # NUMBER ROLE: nothing as long as it runs
    cat "$base/$1.$2.status" 2>/dev/null
}

side() { # NUMBER ROLE: starts the function ROLE_NUMBER
    # shellcheck disable=SC2034 # the function's words name it
    local port=${ports[$1]}
    {
        "$2_$1" </dev/null >"$base/$1.$2" 2>&1
        echo "$?" >"$base/$1.$2.status"
    } &
}

# A port that is free, as it seems; should it be taken, the server says so.
give_port() { # NUMBER
    local other
    ports[$1]=$((32768 + (RANDOM * 32768 + RANDOM) % 28000))
    for other in "${!ports[@]}"; do
        [ "$other" = "$1" ] || [ "${ports[other]}" != "${ports[$1]}" ] || give_port "$1"
    done
}

start_server() { # NUMBER
    give_port "$1"
    rm -f "$base/$1".*
    side "$1" server
    # Nothing is connected to: fi_pingpong takes the first connection for its client.
    reach 0 env FABBENCH_JOB="$token" sh -c 'port=$(printf ":%04X" "$1") tries=0
        while [ "$tries" -lt "$2" ]; do
            cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "$port [0-9A-F]*:0000 0A " && exit
            tries=$((tries + 1))
            sleep 0.1
        done
        exit 1' sh "${ports[$1]}" "$((limit * 10))" </dev/null >/dev/null 2>&1 && : >"$base/$1.ready" &
}

# Waits until every server listens, or one of them has ended.
until_ready() {
    local number deadline=$((SECONDS + limit)) missing
    while [ "$SECONDS" -lt "$deadline" ]; do
        heed
        missing=
        for number in "${!ids[@]}"; do
            [ -z "$(status_of "$number" server)" ] || return
            [ -e "$base/$number.ready" ] || missing=yes
        done
        [ -n "$missing" ] || return
        sleep 0.1
    done
    why='the server was not ready'
}

port_taken() {
    local number
    for number in "${!ids[@]}"; do
        if [ "$(status_of "$number" server)" ] && grep -q 'Address already in use' "$base/$number.server"; then
            return
        fi
    done
    return 1
}

# Follows both sides of every pair to their ends. A side that is left alone gets five seconds.
until_over() {
    local number one other running deadline=$((SECONDS + limit)) since=()
    while :; do
        heed
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
                [ "$((SECONDS - since[number]))" -lt 5 ] || deadline=0
            fi
        done
        [ -n "$running" ] || return
        if given_up; then
            why=$enough
            return
        fi
        [ "$SECONDS" -lt "$deadline" ] || break
        sleep 0.1
    done
    why='it had not ended when its time was up'
}

# Prints what the pair whose turn it is has printed.
give() {
    local role
    for role in server client; do
        if [ -e "$base/$turn.$role" ]; then
            sed "s/^/[fabbench:$role] /" "$base/$turn.$role"
            # What ends without a newline would swallow the next marker.
            [ -z "$(tail -c 1 "$base/$turn.$role")" ] || echo
        fi
    done
}

# Runs the pairs of all steps since the last time, and prints them one after another.
pairs() {
    local number tries early why='' statuses=()
    touched=yes
    begin
    for tries in 1 2 3 4 5; do
        for number in "${!ids[@]}"; do start_server "$number"; done
        until_ready
        port_taken || break
        end_programs
        wait
    done
    for number in "${!ids[@]}"; do
        early=$(status_of "$number" server)
        # Before its client comes a server has no reason to end.
        [ -z "$early" ] || statuses[number]=$((early ? early : 1))
    done
    if [ -z "$why" ] && [ "${#statuses[@]}" = 0 ]; then
        for number in "${!ids[@]}"; do side "$number" client; done
        until_over
    fi
    for number in "${!ids[@]}"; do
        if [ -z "$(status_of "$number" server)" ] || [ -z "$(status_of "$number" client)" ]; then
            end_programs
            break
        fi
    done
    wait
    heed
    for number in "${!ids[@]}"; do
        turn=$number
        [ -n "$begun" ] || begin
        give
        if [ -n "$why" ] && [ -z "${statuses[number]:-}" ]; then
            say "Step ${labels[number]} was ended after $limit s: $why."
        fi
        end "${statuses[number]:-?}"
    done
    rm -f "$base"/[0-9]*.*
    over
}

# ---------------------------------------------------------------- this plan

hosts=()
while read -r host _; do
    case $host in '' | '#'*) ;; *) hosts+=("$host") ;; esac
done < <(tr -s ' ,' '\n' <<<"$* ${HOSTS:-}")
[ "${#hosts[@]}" -ge 2 ] || stop 3 "This needs 2 hosts, and there are ${#hosts[@]}: ${hosts[*]:-none}."
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

snapshot='fabbench_counters() (
    cd "${1:-/}" || exit
    set -- proc/uptime
    for port in sys/class/infiniband/*/ports/*; do
        set -- "$@" "${port%/ports/*}/device/uevent" \
            "$port/rate" "$port/state" "$port/link_layer" "$port/counters/port_xmit_data" \
            "$port/counters/port_rcv_data" "$port/counters/port_xmit_packets" \
            "$port/counters/port_rcv_packets" "$port/hw_counters/tx_bytes" \
            "$port/hw_counters/rx_bytes" "$port/hw_counters/tx_pkts" "$port/hw_counters/rx_pkts" \
            "$port/counters/symbol_error" "$port/counters/link_downed" \
            "$port/counters/link_error_recovery" "$port/counters/local_link_integrity_errors" \
            "$port/counters/port_rcv_errors" "$port/counters/port_xmit_discards" \
            "$port/hw_counters/send_bytes" "$port/hw_counters/recv_bytes" \
            "$port/hw_counters/rdma_write_bytes" "$port/hw_counters/rdma_write_recv_bytes" \
            "$port/hw_counters/rdma_read_bytes" "$port/hw_counters/rdma_read_resp_bytes" \
            "$port/hw_counters/rdma_read_wr_err" "$port/hw_counters/rdma_write_wr_err" \
            "$port/hw_counters/rx_drops" "$port/hw_counters/retrans_bytes" \
            "$port/hw_counters/retrans_pkts" "$port/hw_counters/retrans_timeout_events" \
            "$port/hw_counters/unresponsive_remote_events" \
            "$port/hw_counters/impaired_remote_conn_events" "$port/hw_counters/out_of_sequence" \
            "$port/hw_counters/packet_seq_err" "$port/hw_counters/local_ack_timeout_err" \
            "$port/hw_counters/rnr_nak_retry_err"
    done
    LC_ALL=C grep -sH "" "$@" proc/net/dev sys/class/net/*/device/uevent sys/class/net/*/operstate \
        sys/class/net/*/speed proc/uptime 2>/dev/null || :
)
fabbench_counters'

use_mpirun() { # PATH
    local said
    mpirun=$1
    said=$("$mpirun" --version 2>&1)
    if [[ $said =~ \(Open(\ MPI|RTE)\)\ ([0-9]+)\. ]]; then
        mpi='Open MPI 4'
        [ "${BASH_REMATCH[2]}" -lt 5 ] || mpi='Open MPI 5'
    elif [[ $said == *'HYDRA build details'* || $said == *'Intel(R) MPI Library'* ]]; then
        mpi=hydra
    else
        stop 3 "$mpirun is no mpirun that fabbench knows: ${said%%$'\n'*}"
    fi
    case $mpi in hydra) forward=(-genvlist "PATH${LD_LIBRARY_PATH+,LD_LIBRARY_PATH}") ;;
    *) forward=(-x PATH ${LD_LIBRARY_PATH+-x LD_LIBRARY_PATH}) ;; esac
}
use_mpirun /opt/amazon/openmpi/bin/mpirun

mpirun_1() {
    case $mpi in
    'Open MPI 4' | 'Open MPI 5')
        "$mpirun" --allow-run-as-root --tag-output --bind-to none -H "${hosts[0]}:8,${hosts[1]}:8" -N 8 \
            --mca pml '^cm,ucx' --mca btl tcp,self --mca coll_hcoll_enable 0 --mca btl_tcp_if_include \
            "${FABBENCH_INTERFACE}" "${forward[@]}" "$@"
        ;;
    hydra)
        "$mpirun" -hosts "${hosts[0]}:8,${hosts[1]}:8" -ppn 8 "${forward[@]}" "$@"
        ;;
    esac
}

steps_1() { # efa
    step "$1"/all_reduce all_reduce 1800 'benchmark=nccl collective=all_reduce ranks=16'
    files=()
    ranks 300 mpirun_1 -np 16 env -u NCCL_HOSTID -u NCCL_ALGO -u NCCL_PROTO -u NCCL_TESTS_SPLIT \
            -u NCCL_TESTS_SPLIT_MASK -u NCCL_P2P_DISABLE -u NCCL_P2P_LEVEL -u NCCL_SHM_DISABLE \
            -u NCCL_IB_DISABLE -u FI_EFA_USE_DEVICE_RDMA -u FI_EFA_IFACE "FABBENCH_JOB=${token}" \
            'NCCL_NET=AWS Libfabric' FI_PROVIDER=efa NCCL_MNNVL_ENABLE=0 \
            "NCCL_SOCKET_IFNAME==${FABBENCH_INTERFACE}" NCCL_DEBUG=INFO \
            NCCL_DEBUG_SUBSYS=INIT,NET,ENV "NCCL_DEBUG_FILE=${folder}/debug.%h.%p" stdbuf \
            -oL /opt/nccl-tests/build/all_reduce_perf -b 8 -e 2147483648 -f 2 -g 1 -n 20 -w 5 -c 1 \
            -d float -o sum -r 0 || return
}

steps_2() { # tcp
    step "$1"/all_reduce all_reduce 1800 'benchmark=nccl collective=all_reduce ranks=16'
    files=()
    ranks 300 mpirun_1 -np 16 env -u NCCL_HOSTID -u NCCL_ALGO -u NCCL_PROTO -u NCCL_TESTS_SPLIT \
            -u NCCL_TESTS_SPLIT_MASK -u NCCL_P2P_DISABLE -u NCCL_P2P_LEVEL -u NCCL_SHM_DISABLE \
            -u NCCL_IB_DISABLE -u FI_PROVIDER -u FI_EFA_USE_DEVICE_RDMA -u FI_EFA_IFACE \
            -u FI_EFA_DEVICE_NAME -u FI_EFA_FORK_SAFE -u FI_EFA_ENABLE_SHM_TRANSFER \
            -u FI_EFA_USE_HUGE_PAGE -u FI_EFA_USE_ZCPY_RX -u FI_EFA_ZCPY_RX_SEED \
            -u FI_EFA_TX_MIN_CREDITS -u FI_EFA_TX_QUEUE_SIZE -u FI_EFA_TX_SIZE -u FI_EFA_RX_SIZE \
            -u FI_EFA_CQ_SIZE -u FI_EFA_SHM_AV_SIZE -u FI_EFA_SHM_MAX_MEDIUM_SIZE \
            -u FI_EFA_SHM_CQ_READ_SIZE -u FI_EFA_USE_SM2 -u FI_EFA_RECVWIN_SIZE \
            -u FI_EFA_READCOPY_POOL_SIZE -u FI_EFA_EFA_CQ_READ_SIZE -u FI_EFA_MR_CACHE_ENABLE \
            -u FI_EFA_MR_MAX_CACHED_COUNT -u FI_EFA_MR_MAX_CACHED_SIZE -u FI_EFA_MAX_MEMCPY_SIZE \
            -u FI_EFA_RX_COPY_UNEXP -u FI_EFA_RX_COPY_OOO -u FI_EFA_MAX_TIMEOUT \
            -u FI_EFA_TIMEOUT_INTERVAL -u FI_EFA_INTER_MAX_MEDIUM_MESSAGE_SIZE \
            -u FI_EFA_INTER_MIN_READ_MESSAGE_SIZE -u FI_EFA_INTER_MAX_GDRCOPY_MESSAGE_SIZE \
            -u FI_EFA_INTER_MIN_READ_WRITE_SIZE -u FI_EFA_INTER_READ_SEGMENT_SIZE -u FI_EFA_RUNT_SIZE \
            -u FI_EFA_USE_UNSOLICITED_WRITE_RECV -u FI_EFA_INTERNAL_RX_REFILL_THRESHOLD \
            -u FI_EFA_DIRECT_CQ_OPS -u FI_EFA_SET_CUDA_SYNC_MEMOPS -u FI_EFA_MTU_SIZE \
            -u FI_EFA_TX_IOV_LIMIT -u FI_EFA_RX_IOV_LIMIT -u NCCL_BUFFSIZE -u NCCL_P2P_NET_CHUNKSIZE \
            -u NCCL_TOPO_FILE "FABBENCH_JOB=${token}" NCCL_NET=Socket NCCL_NET_PLUGIN=none \
            NCCL_TUNER_PLUGIN=none NCCL_MNNVL_ENABLE=0 "NCCL_SOCKET_IFNAME==${FABBENCH_INTERFACE}" \
            NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV "NCCL_DEBUG_FILE=${folder}/debug.%h.%p" \
            stdbuf -oL /opt/nccl-tests/build/all_reduce_perf -b 8 -e 2147483648 -f 2 -g 1 -n 20 -w 5 \
            -c 1 -d float -o sum -r 0 || return
}

case ${FABRIC:-all} in all | efa | tcp) ;; *) stop 2 "FABRIC is $FABRIC"', and this script has efa and tcp.' ;; esac
case ${TRIAL:-} in '' | 000-efa-r1 | 001-tcp-r1 | 002-tcp-r2 | 003-efa-r2 | 004-efa-r3 | 005-tcp-r3) ;; *) stop 2 "This script has no trial $TRIAL." ;; esac

trap finish EXIT
trap 'signal=TERM number_of_signal=15' TERM
trap 'signal=INT number_of_signal=2' INT
trap 'signal=HUP number_of_signal=1' HUP
umask 077
if ! { mkdir "$base" && mkfifo "$base/out"; }; then stop 3 "The folder $base cannot be made."; fi

require /opt/nccl-tests/build/all_reduce_perf
trial 000-efa-r1 efa steps_1 'fabric=efa expected=32 among=0,1'
trial 001-tcp-r1 tcp steps_2 'fabric=tcp among=0,1'
trial 002-tcp-r2 tcp steps_2 'fabric=tcp among=0,1'
trial 003-efa-r2 efa steps_1 'fabric=efa expected=32 among=0,1'
trial 004-efa-r3 efa steps_1 'fabric=efa expected=32 among=0,1'
trial 005-tcp-r3 tcp steps_2 'fabric=tcp among=0,1'
heed
[ -n "$all_well" ] || exit 4
"""
