# What a host says of a running job besides its counters.

# WORD: print once for each word, as lines "fabbench: SENTENCE": whose queue pairs RDMA devices have, as far as this user
# may see it, and which of them are nearest to which GPU. Nothing where no tool says it.
fabbench_devices() {
    [ "${fabbench_devices_said-}" != "$1" ] || return 0
    fabbench_devices_said=$1
    PATH=$PATH:/usr/sbin:/sbin timeout 2 rdma resource show qp </dev/null | awk '
        {
            pid = name = ""
            for (i = 1; i < NF; i++) { if ($i == "pid") pid = $(i + 1); if ($i == "comm") name = $(i + 1) }
        }
        pid { split($2, link, "/"); pairs[link[1] ": queue pairs of " name " (process " pid "): "]++ }
        END { for (text in pairs) print "fabbench: " text pairs[text] "." }' | sort
    timeout 5 nvidia-smi topo -m </dev/null | tr -d '\033' | sed 's/\[[0-9;]*m//g' | awk '
        BEGIN { FS = "\t"; split("PIX PXB PHB NODE SYS", ways, " ") }
        !columns && /GPU0/ { columns = split($0, head); next }
        /^GPU/ { gpu[++gpus] = $1; for (i = 1; i <= NF; i++) { gsub(/ /, "", $i); way[gpus, head[i]] = $i } }
        /^ *NIC[0-9]+: / { split($1, legend, ": "); sub(/^ */, "", legend[1]); nic[++nics] = legend[1]; device[nics] = legend[2] }
        END {
            for (g = 1; g <= gpus; g++) for (w = 1; w <= 5; w++) {
                near = ""
                for (n = 1; n <= nics; n++) if (way[g, nic[n]] == ways[w]) near = near " " device[n]
                if (near) { print "fabbench: nearest to " gpu[g] " (" ways[w] "):" near "."; break }
            }
        }'
} 2>/dev/null

# HOST:PORT: print what NCCL's RAS answers there: JSON, or text where NCCL is older than 2.28; nothing where nobody
# listens. All processes of a job on a host listen, also one that was stopped: another try may reach another one. It
# needs bash, or else ncclras.
fabbench_ras() {
    fabbench_host=${1%:*}
    fabbench_host=${fabbench_host#[}
    set -- "${fabbench_host%]}" "${1##*:}"
    command -v bash >/dev/null || {
        timeout 20 ncclras -f json -h "$1" -p "$2" </dev/null
        return
    }
    # shellcheck disable=SC2016 # for bash
    bash -c '
        ask() { printf "%s\n" "$1" >&3 && IFS= read -r -t 2 reply <&3; }
        for _ in 1 2 3 4 5 6; do
            exec 3<>"/dev/tcp/$0/$1" || exit
            ask "CLIENT PROTOCOL 2" || continue
            case $reply in "SERVER PROTOCOL "*) ;; *) exit ;; esac
            ask "TIMEOUT 3"
            ask "SET FORMAT json"
            printf "STATUS\n" >&3
            exec timeout 20 cat <&3
        done
        echo "fabbench: silent"' "$@" </dev/null
} 2>/dev/null

# DIR: print what NCCL's inspector has added to its files there since this was asked last, the newest 64 KiB of each; the
# first time nothing, as it may be old. Of lines that are cut the beginnings are left out. A file that is new, or shorter,
# begins anew.
fabbench_inspector() {
    for fabbench_file in "$1"/*-pid*.log; do
        fabbench_pid=${fabbench_file##*-pid}
        fabbench_pid=${fabbench_pid%.log}
        case $fabbench_pid in *[!0-9]* | "") continue ;; esac
        fabbench_size=$(stat -L -c %s "$fabbench_file") || continue
        eval "fabbench_from=\${fabbench_read_$fabbench_pid:-0}"
        eval "fabbench_read_$fabbench_pid=$fabbench_size"
        [ -n "${fabbench_inspects-}" ] || continue
        [ "$fabbench_from" -le "$fabbench_size" ] || fabbench_from=0
        [ "$fabbench_from" -ge $((fabbench_size - 65536)) ] || fabbench_from=$((fabbench_size - 65536))
        tail -c "+$((fabbench_from + 1))" "$fabbench_file" | head -c "$((fabbench_size - fabbench_from))" | grep '^{"header'
    done
    fabbench_inspects=1
} 2>/dev/null

# Have each rank of PyTorch here dump its flight recorder, and print for each a line "RANK DUMP", by gzip and base64. A
# rank does so into a file (TORCH_FR_DUMP_TEMP_FILE, older: TORCH_NCCL_DEBUG_INFO_TEMP_FILE) when anything comes through
# its pipe (TORCH_NCCL_DEBUG_INFO_PIPE_FILE), and goes on. Its environment is read, as its own user and root may.
fabbench_dumps() (
    value() { tr '\0' '\n' <"$1/environ" | sed -n "s/^$2=//p" | head -n 1; }
    IFS='
'
    asked=$IFS
    set --
    # shellcheck disable=SC2013 # IFS is the end of a line
    for process in $(grep -lsz '^TORCH_[A-Z]*_DEBUG_INFO_PIPE_FILE=.' /proc/[0-9]*/environ); do
        process=${process%/environ}
        stem=$(value "$process" 'TORCH_[A-Z]*_DEBUG_INFO_PIPE_FILE')
        file=$(value "$process" TORCH_FR_DUMP_TEMP_FILE)
        file=${file:-$(value "$process" TORCH_NCCL_DEBUG_INFO_TEMP_FILE)}
        [ -n "$file" ] || continue
        # shellcheck disable=SC2012 # only what the links lead to is read
        for pipe in $(ls -l "$process/fd" | sed -n 's/.* -> \(.*\.pipe\)$/\1/p' | sort -u); do
            rank=${pipe##*/}
            rank=${rank%.pipe}
            rank=${rank#"${stem##*/}"}
            case $rank in '' | *[!0-9]*) continue ;; esac
            # Processes that it forked have it, too
            case $asked in *"$IFS$pipe$IFS"*) continue ;; esac
            [ -p "$process/root$pipe" ] || continue
            asked=$asked$pipe$IFS
            dump=$process/root$file$rank
            set -- "$@" "$rank" "$dump" "$(stat -c %y.%s "$dump")"
            printf 1 1<>"$process/root$pipe"
        done
    done
    left=30
    while [ $# -gt 0 ]; do
        # Until it is another one, and grows no more
        last=
        while now=$(stat -c %y.%s "$2"); [ "$left" -gt 0 ]; do
            [ -z "$now" ] || [ "$now" = "$3" ] || [ "$now" != "$last" ] || break
            last=$now
            left=$((left - 1))
            sleep 0.5 || sleep 1
        done
        if [ -n "$now" ] && [ "$now" != "$3" ]; then
            printf '%s ' "$1"
            gzip -c "$2" | base64 | tr -d '\n'
            echo
        fi
        shift 3
    done
) 2>/dev/null </dev/null
