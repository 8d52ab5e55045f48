# shellcheck shell=bash
# Sourced after _init.sh, and by scripts/lab.sh: programs in network namespaces, which run until the script ends, above all FRR's daemons.
#
# Daemons have their sockets in /run/frr/SPACE (option -N). One configuration goes to all through vtysh, as in FRR's packages, since a line's
# daemon depends on the release: static routes and interfaces belong to staticd and zebra in FRR 8, to mgmtd in FRR 10, which reads no file.

processes=() frr_spaces=() KEEP_S=20

inside() {
  local space=$1
  shift
  ip netns exec "$space" "$@" >>"$WORK/daemons" 2>&1 &
  started=$!
  processes+=("$started")
}

end_processes() {
  local process
  for process in "${processes[@]}"; do kill -9 "$process" 2>/dev/null && wait "$process" 2>/dev/null || true; done
  remove_frr "${frr_spaces[@]}"
}

# remove_frr SPACE.. : removes FRR's folders of these namespaces, which killed daemons leave. FRR 10 has one in /var/lib, too.
remove_frr() {
  local space pid
  for space in "$@"; do
    for pid in "/run/frr/$space"/*.pid; do
      [ ! -e "$pid" ] || rm -rf "/var/tmp/frr/$(basename "$pid" .pid).$(cat "$pid")"
    done
    rm -rf "/run/frr/$space" "/var/lib/frr/$space"
  done
}

# frr SPACE DAEMON.. : starts zebra and these daemons, configured from stdin. With a line `fpm` zebra sends its routes to a forwarder.
frr() {
  local space=$1 daemon
  shift
  cat >"$WORK/$space.conf"
  frr_spaces+=("$space")
  [ -d /run/frr ] || install -d -o frr -g frr /run/frr
  for daemon in zebra mgmtd "$@"; do
    if [ "$daemon" != mgmtd ] || [ -x /usr/lib/frr/mgmtd ]; then start_daemon "$space" "$daemon"; fi
  done
  configure_daemons "$space"
}

frr_again() {
  start_daemon "$1" "$2" again
  configure_daemons "$1" -d "$2"
}

start_daemon() {
  local space=$1 daemon=$2 options=(-N "$1" -u frr -g frr -P 0)
  if [ "$daemon" = zebra ] && grep -q '^fpm ' "$WORK/$space.conf"; then options+=(-M dplane_fpm_nl); fi
  # A restarted zebra keeps its old routes for $KEEP_S seconds, in which the daemons announce theirs.
  if [ "$daemon" = zebra ] && [ "${3:-}" = again ]; then options+=("-K$KEEP_S"); fi
  inside "$space" "/usr/lib/frr/$daemon" "${options[@]}"
  for _ in {1..100}; do
    if vtysh --vty_socket "/run/frr/$space" -d "$daemon" -c 'show version' >/dev/null 2>&1; then return 0; fi
    kill -0 "$started" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$WORK/daemons" >&2
  fail "$daemon does not answer"
}

configure_daemons() {
  local space=$1
  shift
  if ! vtysh --vty_socket "/run/frr/$space" "$@" -f "$WORK/$space.conf" >"$WORK/vtysh" 2>&1; then
    cat "$WORK/vtysh" >&2
    fail "FRR does not take its configuration"
  fi
}

vty() {
  local space=$1 words=() word
  shift
  for word in "$@"; do words+=(-c "$word"); done
  vtysh --vty_socket "/run/frr/$space" "${words[@]}"
}
