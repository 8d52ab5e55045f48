# shellcheck shell=bash
# Sourced after _forwarder.sh: two kernel hosts, each in a network namespace, on two links of `fwd-app run` in a third namespace.
#
# The left host is 198.18.1.2 and fd00:1::2 on link1, the right one 198.18.2.2 and fd00:2::2 on link2; .1 and ::1 are the default routes.

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
need_packages iproute2 iputils-ping ethtool

# $kernel is a namespace that a script may add, for the TAPs.
left=smoke-left-$$ right=smoke-right-$$ router=smoke-router-$$ kernel=smoke-kernel-$$
remove_hosts() {
  local space
  [ -n "$process" ] && kill "$process" 2>/dev/null && wait "$process" 2>/dev/null
  for space in "$left" "$right" "$router" "$kernel"; do ip netns del "$space" 2>/dev/null; done
}
cleanup() { remove_hosts; }

# host SPACE NUMBER : makes a host. The kernel on the router's end must stay silent, and frames must be whole: without offloads.
host() {
  local space=$1 number=$2 interface=link$2 at
  or_skip ip netns add "$space"
  or_skip ip -n "$router" link add "$interface" address "02:f0:00:00:01:0$number" type veth peer name eth0 netns "$space"
  at=(ip -n "$space")
  ip netns exec "$router" sysctl -qw "net.ipv6.conf.$interface.disable_ipv6=1"
  ip netns exec "$router" ethtool -K "$interface" rx off tx off sg off tso off gso off gro off >/dev/null 2>&1
  ip netns exec "$space" ethtool -K eth0 rx off tx off sg off tso off gso off gro off >/dev/null 2>&1
  ip -n "$router" link set "$interface" up
  "${at[@]}" link set lo up
  "${at[@]}" link set eth0 up
  "${at[@]}" address add "198.18.$number.2/24" dev eth0
  "${at[@]}" address add "fd00:$number::2/64" dev eth0 nodad
  "${at[@]}" route add default via "198.18.$number.1"
  "${at[@]}" route add default via "fd00:$number::1"
}
two_hosts() {
  or_skip ip netns add "$router"
  host "$left" 1
  host "$right" 2
}

first_cpu() { sed -n 's/^Cpus_allowed_list:\t\([0-9]*\).*/\1/p' /proc/self/status; }

# between_hosts DRIVER [OPTION..] : starts the forwarder on two ports and waits for it. Its session is separate: Ctrl-C reaches the script alone.
between_hosts() {
  local driver=$1
  shift
  [ -e "$(pkg-config --variable=libdir libdpdk)/librte_$driver.so" ] || skip "this DPDK has no $driver"
  # shellcheck disable=SC2154 # _forwarder.sh has the socket
  RUNTIME_DIRECTORY=$WORK setsid setpriv --pdeathsig TERM ip netns exec "$router" \
    "$APP" run --config '(0,0,0),(1,0,0)' --json "$WORK/report.json" --ctl "$ctl_socket" "$@" -- \
    --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "$router" --lcores "0@$(first_cpu)" \
    --vdev "${driver}1,iface=link1" --vdev "${driver}2,iface=link2" >"$WORK/out" 2>"$WORK/err" &
  process=$!
  forwards
}

forward() {
  local driver=$1
  shift
  between_hosts "$driver" \
    --address 0=198.18.1.1/24 --address 0=fd00:1::1/64 --address 1=198.18.2.1/24 --address 1=fd00:2::1/64 "$@"
}

# on_left COMMAND.. : the command must succeed on the left host. Its output is in $WORK/said.
on_left() {
  if ! ip netns exec "$left" timeout 60 "$@" >"$WORK/said" 2>&1; then
    tail -n 20 "$WORK/said" "$WORK/err" >&2
    fail "$*"
  fi
}

# no_loss TARGET.. : no echo may be lost. Each is a separate ping, since after answers a ping waits only two round trips for the last one.
no_loss() {
  local target
  for target in "$@"; do
    for _ in {1..20}; do on_left ping -n -q -c 1 -W 20 "$target"; done
  done
}
