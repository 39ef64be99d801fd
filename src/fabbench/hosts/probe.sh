#!/bin/sh
# Reports what this host is and has, one item per line: SECTION<TAB>TEXT. Writes no files, needs no root.
#
# -p NAME    a program to look for
# -d DIRECTORY  where to look first; may be a pattern, and ~/ stands for the home directory
# -u DIRECTORY  where to look after PATH
# -l DIRECTORY  where to look for libraries, besides those that the linker knows
# -e DIRECTORY  a directory that must exist; what the programs load from it is reported
#
# Read by probe.py. SECTION.status is the exit status of the command that printed SECTION; "end ok" is the last line.

printf 'probe\t1\n'
LC_ALL=C
export LC_ALL

tab='	'
IFS='
'
newline=$IFS
programs='' first='' usual='' libraries='' required=''
while [ $# -gt 1 ]; do
    word=$2
    case $word in \~/*) word=$HOME/${word#??} ;; esac
    case $1 in
        -p) programs=$programs$word$newline ;;
        -d) first=$first$word$newline ;;
        -u) usual=$usual$word$newline ;;
        -l) libraries=$libraries$word$newline ;;
        -e) required=$required$word$newline ;;
    esac
    shift 2
done
path=$PATH
PATH=$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin

# A program may hang, as nvidia-smi does when a GPU has fallen off the bus.
limit=''
if timeout -k 2 10 true 2>/dev/null; then
    limit='kill'
elif timeout 10 true 2>/dev/null; then
    limit='end'
fi
limited() {
    case $limit in
        kill) timeout -k 2 10 "$@" ;;
        end) timeout 10 "$@" ;;
        *) "$@" ;;
    esac
}

# report SECTION COMMAND...
report() {
    section=$1
    shift
    answer=$("$@" 2>&1 </dev/null)
    status=$?
    [ -z "$answer" ] || printf '%s\n' "$answer" | sed "s/^/$section$tab/"
    printf '%s.status\t%s\n' "$section" "$status"
}

# get FILE: sets $value to its first line. Some files in /sys exist but cannot be read.
get() {
    value=''
    [ -r "$1" ] && IFS='' read -r value 2>/dev/null <"$1"
    [ -n "$value" ]
}

# report_file SECTION FILE
report_file() {
    get "$2" && printf '%s\t%s\n' "$1" "$value"
}

# look NAME: sets $found to its path.
look() {
    found=''
    for folder in $first; do
        try "$folder/$1" && return 0
        # A program itself instead of its directory is the mpirun to use: mpiexec.hydra, mpirun.openmpi.
        [ "$1" = mpirun ] && try "$folder" && return 0
    done
    IFS=:
    for folder in $path; do
        if [ -n "$folder" ] && try "$folder/$1"; then
            IFS=$newline
            return 0
        fi
    done
    IFS=$newline
    for folder in $usual; do try "$folder/$1" && return 0; done
    return 1
}
try() {
    [ -f "$1" ] && [ -x "$1" ] && found=$1
}

machine() {
    report uname uname -snrm
    # The same for two names of one machine, but not for two containers on it.
    if get /proc/sys/kernel/random/boot_id; then
        printf 'identity\t%s\n' "$value $(readlink /proc/self/ns/net) $(readlink /proc/self/ns/mnt)"
    fi
    report cpus getconf _NPROCESSORS_ONLN
    while IFS='' read -r line; do
        case $line in
            HugePages_Total:* | HugePages_Free:* | Hugepagesize:*) printf 'memory\t%s\n' "$line" ;;
        esac
    done 2>/dev/null </proc/meminfo
    # shellcheck disable=SC3045 # in POSIX since 2024, and dash and busybox have it
    report memlock ulimit -l
    report_file load /proc/loadavg
    printf 'disk.path\t%s\n' "${TMPDIR:-/tmp}"
    report disk limited df -Pk "${TMPDIR:-/tmp}"
    # What cloud-init recorded for all users; the metadata service is not queried.
    if [ -r /run/cloud-init/instance-data.json ]; then
        sed -n 's/^ *"availability[_-]zone": *"\([^"]*\)".*/placement.zone\t\1/p
            s/^ *"instance[_-]type": *"\([^"]*\)".*/placement.type\t\1/p' /run/cloud-init/instance-data.json
    fi
}

settings() {
    env | sed -n '/^\(NCCL\|FI\|OFI\|OMPI_MCA\|NVSHMEM\|PMIX\|PRTE\)_[A-Za-z0-9_]*=/{
        /^[^=]*\([Kk][Ee][Yy]\|[Tt][Oo][Kk][Ee][Nn]\|[Ss][Ee][Cc][Rr][Ee][Tt]\|[Pp][Aa][Ss][Ss]\|[Cc][Rr][Ee][Dd]\|[Pp][Rr][Ii][Vv]\|[Aa][Uu][Tt][Hh]\)/s/=.*/=(hidden)/
        s/^/setting'"$tab"'/
        p
    }'
    # What fabbench tune wrote says what it was measured with
    for file in /etc/nccl.conf "$HOME/.nccl.conf" "$NCCL_CONF_FILE" "$NCCL_TUNER_CONFIG_FILE"; do
        [ -f "$file" ] && printf 'file\t%s\n' "$file$(sed -n '/^# Measured with/{
            s/^# M\(.*\)\. Elsewhere.*/ (m\1)/p
            q
        }' "$file" 2>/dev/null)"
    done
}

network() {
    printf 'ssh\t%s\n' "$SSH_CONNECTION"
    report address ip -o -4 addr show
    [ "$status" = 0 ] || report address.bare hostname -I
    while IFS='' read -r line; do printf 'route\t%s\n' "$line"; done 2>/dev/null </proc/net/route
}

# Files of sysfs as they are, PATH:LINE: network interfaces, RDMA devices, and by its place in the PCI tree every GPU,
# RDMA device, and bridge above one. Some of them exist but cannot be read.
devices() (
    cd /sys || return
    set -- class/dmi/id/*_vendor class/dmi/id/product_name class/dmi/id/*_serial module/efa/version
    # shellcheck disable=SC2086,SC2231 # patterns
    {
        for file in operstate mtu; do set -- "$@" class/net/*/$file; done
        # Of the 256 GIDs, the first few are in use.
        for file in fw_ver node_guid device/uevent device/driver/module/version device/net/*/mtu \
            ports/*/link_layer ports/*/state ports/*/rate ports/*/gid_attrs/ndevs/0 \
            ports/*/gids/[0-9] ports/*/gids/1[0-5] ports/*/gid_attrs/types/[0-9] ports/*/gid_attrs/types/1[0-5]; do
            set -- "$@" class/infiniband/*/$file
        done
    }
    seen='' root=$(pwd -P)
    # GPUs are display controllers (03) and accelerators (12).
    for folder in class/infiniband/*/device/ $(grep -ls '^0x\(03\|12\)' bus/pci/devices/*/class); do
        folder=$(cd -P "${folder%/*}" && pwd) || continue
        folder=${folder#"$root/"}
        for file in class numa_node current_link_width max_link_width current_link_speed max_link_speed; do
            set -- "$@" "$folder/$file"
        done
        while folder=${folder%/*} && [ -e "$folder/config" ]; do
            case $seen in *"$newline$folder$newline"*) break ;; esac
            seen=$seen$newline$folder$newline
            acs "$folder" && printf 'sys\t%s/acs:%s\n' "$folder" "$value"
        done
    done
    grep -Hs '' "$@" | sed "s/^/sys$tab/"
)

# acs DIRECTORY: sets $value to the control register of a bridge's Access Control Services, in hex. Only root can read
# the list of its extended capabilities: version and next one, identity, registers.
acs() {
    at=256 header=''
    IFS=" $newline"
    # shellcheck disable=SC2046 # words
    set -- $(od -An -v -tx4 -j256 "$1/config")
    IFS=$newline
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ "$at" -ge 256 ] && [ $((at / 4 - 62)) -le $# ] || return 1
        eval "header=\${$((at / 4 - 63))} value=\${$((at / 4 - 62))}"
        value=${value%????}
        case $header in *000d) return 0 ;; esac
        at=$((0x${header%?????}))
    done
    return 1
}

verbs() {
    if [ -d /dev/infiniband ]; then
        there=0 usable=0
        for file in /dev/infiniband/uverbs*; do
            [ -e "$file" ] && there=$((there + 1))
            [ -r "$file" ] && [ -w "$file" ] && usable=$((usable + 1))
        done
        printf 'uverbs\t%s %s\n' "$there" "$usable"
    else
        printf 'uverbs\tabsent\n'
    fi
}

software() {
    for name in $programs; do
        if look "$name"; then
            printf 'program\t%s\t%s\t%s\n' "$name" "$found" "$(size_of "$found")"
        else
            printf 'program\t%s\n' "$name"
        fi
    done
    for required_folder in $required; do
        [ -d "$required_folder" ] || printf 'absent\t%s\n' "$required_folder"
        for name in $programs; do
            # mpirun itself gets no other libraries.
            [ "$name" = mpirun ] || ! look "$name" || loaded_from "${required_folder%/}/"
        done
    done
    for name in stdbuf setsid timeout python3; do
        look "$name" && printf 'tool\t%s\t%s\n' "$name" "$found"
    done
    [ -r /opt/amazon/efa_installed_packages ] && report efa.installer sed -n 1,9p /opt/amazon/efa_installed_packages
    report_file nvidia.driver /proc/driver/nvidia/version
    known=$(limited ldconfig -p 2>/dev/null </dev/null |
        sed -n '/lib\(nccl\|nvshmem\|fabric\|cudart\)[^ ]*\.so/s/^.*=> *//p')
    for file in $known; do printf 'library\t%s\n' "$file"; done
    IFS=:$newline
    for folder in $libraries $LD_LIBRARY_PATH; do
        for file in "${folder%/}"/libnccl*.so* "${folder%/}"/libnvshmem_host*.so*; do
            [ -f "$file" ] && printf 'library\t%s\n' "$file"
        done
    done
    IFS=$newline
    # The linker knows libnccl.so.2; the file beside it has the whole version in its name.
    for file in $known; do
        case $file in */libnccl.so*) printf 'library\t%s\n' "${file%/*}"/libnccl.so.* ;; esac
    done
}

# loaded_from DIRECTORY/: the program $found and the libraries that the linker finds for it, if they are in there.
loaded_from() {
    case $found in "$1"*) printf 'own\t%s\n' "$found" ;; esac
    limited ldd "$found" 2>/dev/null </dev/null | while IFS='' read -r line; do
        case $line in *" => $1"*) line=${line#*=> } && printf 'own\t%s\n' "${line% (0x*}" ;; esac
    done
}

size_of() {
    IFS=' '
    # shellcheck disable=SC2012,SC2046 # one file, of which the fifth word is used
    set -- $(ls -lnL "$1" 2>/dev/null)
    printf '%s' "$5"
}

# Slow commands: they run in parallel, and each passes on the output of those before it.
fabric() {
    if look fi_info; then
        printf 'fi_info.path\t%s\n' "$found"
        # All that it offers, not what this shell's variable leaves of it, which settings() reports.
        (
            unset FI_PROVIDER
            report fi_info limited "$found"
        )
    else
        printf 'fi_info.status\t127\n'
    fi
}

fabric_version() {
    look fi_info && report fi_version limited "$found" --version
}

port_mtu() {
    look ibv_devinfo && limited "$found" 2>/dev/null </dev/null | sed -n "/hca_id\\|_mtu/s/^/ibv$tab/p"
}

gpus() {
    look nvidia-smi || {
        printf 'gpu.status\t127\n'
        return
    }
    known=index,name,driver_version,pci.bus_id,uuid
    answer=$(limited "$found" --query-gpu="$known,fabric.state" --format=csv,noheader,nounits 2>&1 </dev/null)
    status=$?
    case $answer in
        *'not a valid field'*) report gpu limited "$found" --query-gpu="$known" --format=csv,noheader,nounits ;;
        *) report gpu repeat ;;
    esac
}
repeat() {
    printf '%s\n' "$answer"
    return "$status"
}

gpu_work() {
    look nvidia-smi && report gpu.work limited "$found" --query-compute-apps=pid --format=csv,noheader
}

mpi() {
    case $newline$programs in
        *"${newline}mpirun$newline"*) look mpirun && report mpi limited "$found" --version ;;
    esac
}

{
    fabric | {
        fabric_version
        cat
    } | {
        port_mtu
        cat
    } | {
        gpus
        cat
    } | {
        gpu_work
        cat
    } | {
        mpi
        cat
    } | {
        machine
        settings
        network
        devices
        verbs
        software
        cat
    }
} 2>/dev/null
printf 'end\tok\n'
