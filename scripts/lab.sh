#!/usr/bin/env bash
# Two hosts, a forwarder between them, and a prompt to ask it: for a first look, without NICs and without hugepages.
#
#   scripts/lab.sh              the hosts are network namespaces of this machine; a ping goes through the forwarder
#   scripts/lab.sh --frr        with FRR behind the forwarder's ports and on the right host, and routes that it learns by BGP
#   scripts/lab.sh --name NAME  another name than `lab` for namespaces and socket, so that a second lab can run
#
# On a fresh Debian or Ubuntu, as root or with sudo: installs missing packages and builds; FWD_APP names a built program. At a terminal it
# ends in the prompt of `fwd-app ctl`; elsewhere it asks a few questions and ends. At the end it removes everything it has made, also after
# Ctrl-C, a closed terminal or an error; the next lab of its name removes the rest of a killed one.
# Exit 0: packets and, with --frr, routes have arrived. Exit 1: not. Exit 2: bad usage.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

arguments=("$@") lab=lab with_frr=
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --frr) with_frr=yes ;;
    --name)
      [[ "${2:-}" =~ ^[a-z][a-z0-9-]{0,19}$ ]] || { note "lab.sh: --name wants a short name of small letters and digits" >&2 && exit 2; }
      lab=$2
      shift
      ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

cd "$TOP"
if [ -z "${FWD_APP:-}" ]; then
  need_all
  say "building fwd-app"
  cargo build --release -p fwd-app
  FWD_APP=$(target_dir)/release/fwd-app
fi
[ -x "$FWD_APP" ] || die "no program $FWD_APP"
if [ "$(id -u)" != 0 ]; then
  has sudo || die "network namespaces need root, and there is no sudo"
  exec sudo FWD_APP="$(realpath "$FWD_APP")" "$TOP/scripts/lab.sh" "${arguments[@]}"
fi

at_terminal=
[ -t 0 ] && [ -t 1 ] && at_terminal=yes

APP=$FWD_APP
# FRR's daemons run as another user, who needs access to this folder.
WORK=/run/fwd-$lab
fail() { die "$*"; }
skip() { die "$*"; }
. scripts/smoke/_forwarder.sh
. scripts/smoke/_hosts.sh
. scripts/smoke/_frr.sh
left=$lab-left right=$lab-right router=$lab-router daemons=$lab-frr ctl_socket=/run/fwd-app/$lab.sock

remove() {
  local space
  for space in "$left" "$right" "$daemons" "$router"; do
    { ip netns pids "$space" | xargs -r kill -9; } 2>/dev/null || true
    ip netns del "$space" 2>/dev/null || true
  done
  remove_frr "$daemons" "$right"
  rm -f "$ctl_socket"
  [ ! -e "$WORK/made-folder" ] || rmdir /run/fwd-app 2>/dev/null || true
  rm -rf "$WORK"
}
# end : gives the forwarder time to end. The terminal may be gone, and no signal may interrupt this.
end() {
  local code=$?
  trap '' INT HUP TERM PIPE
  set +e
  # Bash would report each killed job.
  exec 2>/dev/null
  if [ -n "$process" ]; then
    kill -TERM "$process" 2>/dev/null
    for _ in {1..50}; do kill -0 "$process" 2>/dev/null || break; sleep 0.1; done
  fi
  remove
  wait
  note "the lab is gone"
  exit "$code"
}
if ! mkdir "$WORK" 2>/dev/null; then
  owner=$(cat "$WORK/pid" 2>/dev/null || true)
  ! grep -qs "lab.sh" "/proc/${owner:-none}/cmdline" || die "a lab with this name is running, process $owner; choose another name with --name"
  note "a killed lab has left namespaces or processes: removing them"
  remove
  mkdir "$WORK"
fi
trap end EXIT
# ping catches SIGINT and exits with success, so the script would go on. For other signals bash runs the EXIT trap.
trap 'exit 130' INT
printf '%s\n' $$ >"$WORK/pid"
[ -d /run/fwd-app ] || touch "$WORK/made-folder"

pings() {
  local address
  for address in "$@"; do
    note "$left# ping -n -c 3 $address"
    ip netns exec "$left" ping -n -c 3 -i 0.3 -W 5 "$address" || fail "no answer from $address"
  done
}
ask() {
  note "fwd-app> $*"
  ctl "$@"
}

# bgp AS ROUTER-ID PEER-AS PEER-V4 PEER-V6 PREFIX-V4 PREFIX-V6 : bgpd's configuration with one neighbour and the announced prefixes.
bgp() {
  local address
  printf 'router bgp %s\n bgp router-id %s\n no bgp ebgp-requires-policy\n no bgp network import-check\n' "$1" "$2"
  printf ' no bgp default ipv4-unicast\n'
  shift 2
  for address in "$2" "$3"; do printf ' neighbor %s remote-as %s\n neighbor %s timers connect 1\n' "$address" "$1" "$address"; done
  printf ' address-family ipv4 unicast\n  neighbor %s activate\n  network %s\n exit-address-family\n' "$2" "$4"
  printf ' address-family ipv6 unicast\n  neighbor %s activate\n  network %s\n exit-address-family\n' "$3" "$5"
}
learned() {
  local address
  for address in 203.0.113.1 2001:db8:9::1; do ctl route get "$address" | grep -q '203.0.113.0/24\|2001:db8:9::/48' || return 1; done
}
start_frr() {
  need_packages frr
  [ -c /dev/net/tun ] || die "no /dev/net/tun, which TAPs need"
  ip netns add "$daemons"
  ip -n "$daemons" link set lo up
  ip -n "$right" address add 203.0.113.1/24 dev lo
  ip -n "$right" address add 2001:db8:9::1/48 dev lo nodad
}

say "$lab: two hosts and a router"
cat <<END
  $left             $router               $right
  198.18.1.2  ----  .1 [ fwd-app run ] .1  ----  198.18.2.2
  fd00:1::2         ::1    ports 0, 1    ::1     fd00:2::2
END
two_hosts
options=(--fib /dev/null)
if [ -n "$with_frr" ]; then
  start_frr
  options=(--fpm 127.0.0.1:2620 --fpm-user frr --tap "0=tap0" --tap "1=tap1" --tap-netns "$daemons")
fi
note "starting the forwarder; its messages are in $WORK/err"
forward net_af_packet "${options[@]}"
pings 198.18.2.2 fd00:2::2

if [ -n "$with_frr" ]; then
  say "$lab: BGP between the forwarder's FRR (AS 65001, in $daemons) and the right host's (AS 65002)"
  # Not in a pipe, since the daemons must be children of this shell. Only this zebra, behind the forwarder's ports, has an FPM connection.
  frr "$daemons" bgpd < <(note 'fpm address 127.0.0.1 port 2620' && bgp 65001 198.18.2.1 65002 198.18.2.2 fd00:2::2 198.18.1.0/24 fd00:1::/64)
  frr "$right" bgpd < <(bgp 65002 198.18.2.2 65001 198.18.2.1 fd00:2::1 203.0.113.0/24 2001:db8:9::/48)
  within 30 learned
  ask show feeds
  ask route get 203.0.113.1
  pings 203.0.113.1 2001:db8:9::1
fi

if [ -z "$at_terminal" ]; then
  say "$lab: answers of the forwarder"
  ask show neigh
  ask route get 198.18.2.2
  ask show port stats
  note "lab: it works"
  exit 0
fi

without=
has tcpdump || without='   (apt install tcpdump)'
say "$lab: what to try"
cat <<END
at the prompt below
  show neigh                         the hosts, and how their MACs were found
  show port stats                    packets and bytes of both ports;   show drops: what was not sent, and why
  route get 198.18.2.2               which route, which next hop
  trace 3                            the next three packets, stage by stage: ping first, in another terminal
  help                               all words;   quit or Ctrl-D removes the lab
in other terminals
  ip netns exec $left ping 198.18.2.2
  ip netns exec $right tcpdump -ni eth0$without
  $APP ctl --socket $ctl_socket show neigh
END
if [ -n "$with_frr" ]; then
  cat <<END
  vtysh --vty_socket /run/frr/$daemons -c 'show bgp summary'
  vtysh --vty_socket /run/frr/$right -c 'configure terminal' -c 'router bgp 65002' -c 'neighbor 198.18.2.1 shutdown'
                                     takes the routes away: route get 203.0.113.1 has none, until  no neighbor 198.18.2.1 shutdown
END
fi
note
ctl
