#!/usr/bin/env bash
# fabbench render nccl --ab --as script --instance-type p5.48xlarge
# fabbench parse and compare read what this prints. FABRIC=LABEL runs one configuration alone.
# shellcheck disable=SC2016,SC2043,SC2054,SC2317,SC2329 # other shells expand; functions are arguments
set -u
exec 2>&1 # errors belong to the log
read -ra hosts <<<"${*:-${HOSTS:-}}"
[ "${#hosts[@]}" -ge 2 ] || { echo "Name 2 hosts: bash $0 HOST…" >&2; exit 3; }
ranks=$((8 * ${#hosts[@]})) where=$(printf ',%s:8' "${hosts[@]}") where=${where:1} # 8 per node
# For Open MPI. fabbench render --supervised supports MPICH and Intel MPI, too.
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
    -u NCCL_P2P_DISABLE -u NCCL_P2P_LEVEL -u NCCL_SHM_DISABLE -u NCCL_IB_DISABLE NCCL_MNNVL_ENABLE=0
    'NCCL_SOCKET_IFNAME=^docker,lo,veth' NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV)

step() { # NAME FACTS COMMAND…: run a command between marker lines
    echo "#@fabbench begin $execution/$1 $2"
    if "${@:3}"; then code=0; else code=$? status=4; fi
    echo "#@fabbench end $execution/$1 $code"
}

case ${FABRIC:-all} in all | efa | tcp) ;; *) echo "FABRIC is $FABRIC, but this has efa, tcp." && exit 2 ;; esac
status=0
for execution in 000-efa-r1 001-tcp-r1 002-tcp-r2 003-efa-r2 004-efa-r3 005-tcp-r3; do
    label=${execution#*-} label=${label%-r*}
    case ${FABRIC:-all} in all | "$label") ;; *) continue ;; esac
    case $label in
    efa) env=(env -u FI_EFA_USE_DEVICE_RDMA -u FI_EFA_IFACE 'NCCL_NET=AWS Libfabric' FI_PROVIDER=efa) ;;
    tcp)
        env=(bash -c 'unset "${!FI_EFA_@}"; exec "$@"' - env -u FI_PROVIDER -u NCCL_BUFFSIZE
            -u NCCL_P2P_NET_CHUNKSIZE -u NCCL_TOPO_FILE NCCL_NET=Socket NCCL_NET_PLUGIN=none
            NCCL_TUNER_PLUGIN=none)
        ;;
    esac
    step all_reduce "benchmark=nccl collective=all_reduce ranks=${ranks}" "${mpirun[@]}" \
        -np "${ranks}" "${clean[@]}" "${env[@]}" stdbuf -oL /opt/nccl-tests/build/all_reduce_perf \
        -b 8 -e 2G -f 2 -g 1 -n 20 -w 5 -c 1 -d float -o sum -r 0
done
exit "$status"
