#!/usr/bin/env bash
# fabbench render nccl --ab --as script --instance-type p5.48xlarge
# fabbench parse and compare read what this prints. FABRIC=LABEL runs one configuration alone.
# Functions are arguments:
# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329
set -um; exec 2>&1 # errors belong to the log
read -ra hosts <<<"${*:-${HOSTS:-}}"
[ "${#hosts[@]}" -ge 2 ] || { echo "usage: bash $0 HOST… (2 hosts)" >&2; exit 3; }
ranks=$((8 * ${#hosts[@]})) where=$(printf ',%s:8' "${hosts[@]}") where=${where:1} # 8 per node
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
mpirun=(/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output --bind-to none -H "${where}" -N 8
    --mca pml '^cm,ucx' --mca btl tcp,self --mca coll_hcoll_enable 0 --mca btl_tcp_if_exclude
    lo,docker0,veth_def_agent -x PATH -x LD_LIBRARY_PATH)
# What an image or a profile sets must not change what is measured.
# NCCL_NET: fails where NCCL would fall back to another network.
# NCCL_TUNER_PLUGIN: EFA's would steer sockets, too; for EFA, NCCL finds it by itself (2.21 and later).
# NCCL_BUFFSIZE: like P2P_NET_CHUNKSIZE and TOPO_FILE tuned for EFA, where the plugin sets it.
# NCCL_MNNVL_ENABLE: 0 keeps data off NVLink between hosts; 1 is for the fabric nvlink.
# NCCL_SOCKET_IFNAME: ranks meet over an interface that reaches other hosts.
# NCCL_DEBUG: the log has to show the network that was used.
clean=(env -u NCCL_HOSTID -u NCCL_ALGO -u NCCL_PROTO -u NCCL_TESTS_SPLIT -u NCCL_TESTS_SPLIT_MASK
    -u NCCL_P2P_DISABLE -u NCCL_P2P_LEVEL -u NCCL_SHM_DISABLE -u NCCL_IB_DISABLE -u FI_EFA_USE_DEVICE_RDMA
    -u FI_EFA_IFACE NCCL_MNNVL_ENABLE=0 'NCCL_SOCKET_IFNAME=^docker,lo,veth' NCCL_DEBUG=INFO
    NCCL_DEBUG_SUBSYS=INIT,NET,ENV)

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

counters='cd /; grep -sH "" proc/uptime proc/net/{dev,snmp} \
    sys/class/net/*/{operstate,speed,device/uevent} sys/class/infiniband/*/device/uevent \
    sys/class/infiniband/*/ports/*/{rate,state,link_layer,*counters/*} proc/uptime'
nics() { # WHEN: print what every host's NICs have counted, packed
    for number in "${!hosts[@]}"; do
        packed=$(on "$number" timeout 10 bash -c "$counters" </dev/null 2>/dev/null | gzip | base64 -w 0)
        echo "#@fabbench nics $execution when=$1 number=$number host=${hosts[number]} $facts packed=$packed"
    done
}

case ${FABRIC:-all} in all | efa | tcp) ;; *) echo "FABRIC is $FABRIC, but this has efa, tcp." && exit 2 ;; esac
status=0
for execution in 000-efa-r1 001-tcp-r1 002-tcp-r2 003-efa-r2 004-efa-r3 005-tcp-r3; do
    label=${execution#*-} label=${label%-r*}
    case ${FABRIC:-all} in all | "$label") ;; *) continue ;; esac
    case $label in
    efa) facts='fabric=efa expected=32 among=all'
        env=(env 'NCCL_NET=AWS Libfabric' FI_PROVIDER=efa) ;;
    tcp) facts='fabric=tcp among=all'
        env=(env -u FI_PROVIDER -u NCCL_BUFFSIZE -u NCCL_P2P_NET_CHUNKSIZE -u NCCL_TOPO_FILE NCCL_NET=Socket
            NCCL_NET_PLUGIN=none NCCL_TUNER_PLUGIN=none) ;;
    esac
    nics before
    step all_reduce "benchmark=nccl collective=all_reduce ranks=${ranks}" timeout --foreground -k 10 1800 \
        "${mpirun[@]}" -np "${ranks}" "${clean[@]}" "${env[@]}" stdbuf \
        -oL /opt/nccl-tests/build/all_reduce_perf -b 8 -e 2G -f 2 -g 1 -n 20 -w 5 -c 1 -d float -o sum -r 0
    nics after
done
exit "$status"
