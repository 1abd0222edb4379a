# Holds one PostgreSQL server for a test, and leaves nothing of it behind however the test ends.
#
#   sh -c "$(cat watchdog.sh)" watchdog DIRECTORY [UID:GID]
#
# Makes the directory, for that user. Each line of standard input is a command to be run here; its exit status
# is the answer. End of file comes when the test process ends in any way: then the server is killed and the
# directory is removed.
directory=$1
owner=$2
server=

# Only end of file ends this. A test that is gone before it was answered must not end it earlier.
trap '' HUP INT TERM PIPE

mkdir -m 700 "$directory" || exit
[ -z "$owner" ] || chown "$owner" "$directory"
exec 2>>"$directory/postgres.log"

# Whether the server lives. A number that the system has given to somebody else is not our child.
running() {
    [ -n "$server" ] || return 1
    set -- $(ps -o ppid= -o stat= -p "$server")
    case $1:$2 in
    $$:Z*) return 1 ;;
    $$:*) return 0 ;;
    *) return 1 ;;
    esac
}

# Whether the server accepts connections, as its lock file says. That of a killed server names another process.
ready() {
    awk -v server="$server" '
        NR == 1 { ours = $1 == server }
        NR == 8 { accepts = $1 == "ready" }
        END { exit !(ours && accepts) }
    ' "$directory/data/postmaster.pid" 2>/dev/null
}

children() {
    ps -A -o pid= -o ppid= -o stat= | awk -v server="$server" '$2 == server && $3 !~ /^Z/ { print $1 }'
}

# Kills the server and its backends. Each is a session of its own, so there is no group to be killed at once;
# a server that is stopped starts no more of them.
crash() {
    running || return 0
    kill -STOP "$server"
    while backends=$(children) && [ -n "$backends" ]; do
        kill -KILL $backends
    done
    kill -KILL "$server"
    wait "$server"
    server=
}

while read -r order; do
    eval "$order" </dev/null >>"$directory/postgres.log"
    echo "$?"
done

crash
# The lock file of a killed server tells which segment of shared memory it could not give back.
segment=$(sed -n '7s/.* //p' "$directory/data/postmaster.pid")
[ -z "$segment" ] || ipcrm -m "$segment"
rm -rf "$directory"
