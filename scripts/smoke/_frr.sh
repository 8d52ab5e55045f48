# shellcheck shell=bash
# Sourced after _init.sh: programs that run in network namespaces until the script ends, and FRR's daemons above all.
#
# FRR has a folder for each namespace, $WORK/SPACE, with a DAEMON.conf for each daemon. FRR's own user must be able to write there.

# need_frr_and_bird : installs both, or skips the script.
need_frr_and_bird() {
  (need_all frr bird2) || skip "FRR and bird2 cannot be installed"
  has vtysh && [ -x /usr/lib/frr/zebra ] && has bird || skip "no FRR or no bird2"
}

processes=()

# inside SPACE COMMAND.. : starts a program, whose process is then $started.
inside() {
  local space=$1
  shift
  ip netns exec "$space" "$@" >>"$WORK/daemons" 2>&1 &
  started=$!
  processes+=("$started")
}

# end_processes : kills all that is in `processes`.
end_processes() {
  local process
  for process in "${processes[@]}"; do kill -9 "$process" 2>/dev/null && wait "$process" 2>/dev/null || true; done
}

# frr SPACE DAEMON [OPTION..] : starts a daemon of FRR.
frr() {
  local space=$1 name=$2
  shift 2
  inside "$space" "/usr/lib/frr/$name" -u frr -g frr -z "$WORK/$space/z" --vty_socket "$WORK/$space" -A 127.0.0.1 -P 0 \
    -f "$WORK/$space/$name.conf" -i "$WORK/$space/$name.pid" "$@"
}

# vty SPACE COMMAND.. : the commands of vtysh.
vty() {
  local space=$1 words=() word
  shift
  for word in "$@"; do words+=(-c "$word"); done
  ip netns exec "$space" vtysh --vty_socket "$WORK/$space" "${words[@]}"
}
