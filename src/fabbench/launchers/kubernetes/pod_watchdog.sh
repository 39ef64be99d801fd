# Process 1 of fabbench's pods. It keeps a pod running as long as fabbench sends heartbeats, and reaps what
# programs leave behind. POSIX sh with coreutils; for ssh also OpenSSH's server, and grep and sed.
#
#   sh -c … fabbench LEASE ssh|exec PORT FOLDER KEYS
#
# fabbench creates the file FOLDER-beat every few seconds. Without it for LEASE seconds the pod exits, and its
# Job ends: a laptop that dies leaves nothing in the cluster. Seconds are counted, because clocks may jump.
set -u
umask 077
lease=$1 agent=$2 port=$3 folder=$4 keys=$5
beat=$folder-beat
sshd=

# The second argument is shown as the message of the pod's status.
end() {
    echo "fabbench: $2" >&2
    if [ -w /dev/termination-log ]; then echo "$2" >/dev/termination-log; fi
    [ -z "$sshd" ] || kill "$sshd" 2>/dev/null
    exit "$1"
}

find_sshd() {
    for program in /usr/sbin/sshd /usr/local/sbin/sshd /usr/bin/sshd /usr/local/bin/sshd; do
        if [ -x "$program" ]; then return; fi
    done
    end 127 "sshd not found in this image."
}

# Programs started by ssh get the environment of the image and the pod, as those started by exec do.
write_files() {
    export -p >"$folder/env"
    cat >"$folder/session" <<END
. $folder/env
exec /bin/sh -c "\$SSH_ORIGINAL_COMMAND"
END
    cat >"$folder/sshd_config" <<END
Port $port
HostKey $folder/host_key
AuthorizedKeysFile $keys/authorized_keys
ForceCommand /bin/sh $folder/session
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
UseDNS no
MaxStartups 1000
MaxSessions 1000
PidFile none
LogLevel ERROR
END
    cat >"$folder/ssh_config" <<END
Host *
  Port $port
  IdentityFile $keys/key
  IdentitiesOnly yes
  UserKnownHostsFile $folder/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
  ConnectTimeout 15
  ServerAliveInterval 15
END
}

start_sshd() {
    find_sshd
    command -v ssh-keygen >/dev/null || end 127 "ssh-keygen not found in this image."
    [ -r "$keys/authorized_keys" ] || end 126 "The image's user cannot read $keys: ssh needs root."
    rm -f "$folder/host_key"
    ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key" || end 126 "Cannot generate a host key."
    write_files || end 126 "Cannot write to $folder."
    mkdir -p /run/sshd 2>/dev/null
    # sshd refuses logins to a locked account, even with a key. Only change this inside a container.
    if [ "$$" = 1 ] && grep -q '^root:!' /etc/shadow 2>/dev/null; then
        sed 's/^root:!/root:*/' /etc/shadow >"$folder/shadow" && cat "$folder/shadow" >/etc/shadow
        rm -f "$folder/shadow"
    fi
    umask 022
    "$program" -D -e -f "$folder/sshd_config" &
    sshd=$!
}

trap 'end 143 "Terminated by a signal."' TERM INT
mkdir -p "$folder" || end 126 "Cannot create $folder."
if [ "$agent" = ssh ]; then start_sshd; fi
quiet=0
while [ "$quiet" -lt "$lease" ]; do
    # In the background, so that signals are handled at once.
    sleep 1 &
    wait "$!"
    quiet=$((quiet + 1))
    if [ -e "$beat" ]; then
        rm -f "$beat"
        quiet=0
    fi
    [ -z "$sshd" ] || kill -0 "$sshd" 2>/dev/null || end 1 "sshd exited unexpectedly; see its log."
done
end 75 "No heartbeat from fabbench for $lease s."
