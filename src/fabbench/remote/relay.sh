# How mpirun starts its daemons on other hosts and in other pods, instead of ssh: fabbench, which is connected to all of
# them, runs the command there. POSIX sh with coreutils.
#
#   sh relay.sh FOLDER [OPTION…] HOST COMMAND…   as ssh is called
#
# Each call writes a file NAME.request, and its name to the pipe `requests`, which the agent's `relay` shows fabbench.
# It answers in the pipe NAME.answers: lines `out TEXT`, and at the end `ended STATUS`. Nothing polls: that would disturb
# the measurement.
{ set +x; } 2>/dev/null # hydra calls its agent with -x, as it is ssh's option
set -u
umask 077

folder=$1
shift
while [ $# -gt 0 ]; do
    case $1 in
    -[bceiFlLmopRSWw]) shift 2 ;; # ssh's options with a value
    -*) shift ;;
    *) break ;;
    esac
done
host=$1
shift
file=$(mktemp "$folder/XXXXXXXX") || exit 255
trap 'rm -f "$file" "$file.request" "$file.answers"' EXIT
trap 'exit 143' HUP INT TERM
mkfifo "$file.answers" || exit 255
exec 3<>"$file.answers"
printf '%s\n' "$host" "$*" >"$file" && mv "$file" "$file.request" || exit 255
echo "${file##*/}.request" 1<>"$folder/requests"
while read -r word text <&3; do
    case $word in
    out) printf '%s\n' "$text" ;;
    ended) exit "$text" ;;
    esac
done
