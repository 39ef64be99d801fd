# How mpirun starts its daemons on other hosts and in other pods, instead of ssh: fabbench, which is connected to all of
# them, runs the command there. POSIX sh with coreutils.
#
#   sh relay.sh FOLDER [OPTION…] HOST COMMAND…   as ssh is called
#   sh relay.sh serve FOLDER                     as fabbench calls it
#
# Each call writes a file NAME.request, and its name to the pipe `requests`. fabbench answers in the pipe
# NAME.answers: lines `out TEXT`, and at the end `ended STATUS`. Nothing polls: that would disturb the
# measurement.
{ set +x; } 2>/dev/null # hydra calls its agent with -x, as it is ssh's option
set -u
umask 077

show() {
    if [ -e "$1" ]; then echo "request ${1%.request} $(base64 <"$1" | tr -d '\n')"; fi
}

if [ "$1" = serve ]; then
    cd "$2" || exit
    # An earlier server that lost its connection to fabbench would take requests.
    # shellcheck disable=SC2046 # words
    [ ! -e server ] || kill $(cat server) 2>/dev/null
    [ -p requests ] || mkfifo requests || exit
    # A pipe that is open for reading and writing never blocks on its other end.
    exec 4<>requests
    echo ready
    {
        for file in *.request; do show "$file"; done
        while read -r file <&4; do show "$file"; done
    } &
    echo "$$ $!" >server
    while read -r name answer; do
        if [ -p "$name.answers" ]; then printf '%s\n' "$answer" 1<>"$name.answers"; fi
    done
    kill "$!"
    exit
fi

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
