#!/usr/bin/env bash
# `ctl reload` and SIGHUP apply addresses, MTUs, routes, the order of sources and the log level; an error changes nothing. Packets continue.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"
idle_sleeps

[ -c /dev/net/tun ] || skip "no /dev/net/tun"
two_hosts

# configure ADDRESSES-OF-PORT-0 RX-BURST LOG-LEVEL [MTU-OF-PORT-0 [MTU-OF-PORT-1 [PREFER]]] : writes the file.
configure() {
  local mtu0=${4:+mtu = $4} mtu1=${5:+mtu = $5} prefer=${6:+prefer = [$6]}
  cat >"$WORK/edge.toml" <<END
[[port]]
device = "0"
tap = "edge0"
addresses = [$1]
$mtu0
[[port]]
device = "1"
addresses = ["198.18.2.1/24", "fd00:2::1/64"]
$mtu1
[ports]
ports = "all"
[sources]
fib = "$WORK/routes.txt"
kernel-routes = true
$prefer
[forwarder]
rx-burst = $2
log-level = "$3"
END
}
reloaded() {
  ctl reload >"$WORK/answer" 2>&1 || true
  grep -q -- "$1" "$WORK/answer" || { cat "$WORK/answer" >&2 && fail "ctl reload does not say: $1"; }
}
has_route() { ctl route get "$1" | grep -q "$1/32"; }
has_config() {
  ctl show config | grep -q "$1 *$2 *$WORK/edge.toml:" || { ctl show config >&2 && fail "ctl show config lacks $1 = $2"; }
}
# reaches BYTES : a ping of this size with "don't fragment" is answered. The left host first drops its path MTUs.
reaches() {
  ip -n "$left" route flush cache
  ip netns exec "$left" ping -n -M "do" -c 2 -W 5 -s "$1" 198.18.2.2 >"$WORK/sized" 2>&1
}
tap_mtu_is() { ip -n "$router" link show dev edge0 | grep -q "mtu $1 "; }
leads_to() { ctl route get 203.0.113.200 | grep -q "$1"; }
tap_has() { ip -n "$router" -br address show dev edge0 | grep -q "$1"; }

echo '203.0.113.0/24 via 198.18.2.2 dev 1' >"$WORK/routes.txt"
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info
between_hosts net_af_packet --config-file "$WORK/edge.toml"
no_loss 198.18.2.2
ip netns exec "$left" ping -n -i 0.05 -w 100 198.18.2.2 >"$WORK/pings" &
pings=$!

configure '"198.18.1.1/24", "fd00:1::1/64", "198.18.1.9/24"' 32 debug
echo '203.0.113.128/25 via 198.18.2.2 dev 1' >>"$WORK/routes.txt"
reloaded 'needs a restart  forwarder.rx-burst'
grep -q 'forwarder.log-level, port.0.addresses' "$WORK/answer" || { cat "$WORK/answer" >&2 && fail "applied keys"; }
has_route 198.18.1.9 || fail "there is no route to the new address"
within 5 tap_has 198.18.1.9/24
on_left ping -n -q -c 1 -W 5 198.18.1.9
ctl route get 203.0.113.129 | grep -q 203.0.113.128/25 || fail "the new route is not there"

configure '"198.18.1.1/24", "fd00:1::1/64"' 9999 info
reloaded 'edge.toml:1[0-9]: forwarder.rx-burst'
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info
echo '203.0.113.0/33 1' >>"$WORK/routes.txt"
reloaded 'routes.txt:3'
has_route 198.18.1.9 || fail "a reload that was refused has taken an address"

sed -i '3d' "$WORK/routes.txt"
kill -HUP "$process"
gone() { ! has_route 198.18.1.9 && ! tap_has 198.18.1.9/24; }
within 5 gone

# An MTU changes the NIC, routes, TAP and ICMP errors; one above an mbuf's capacity changes nothing.
reaches 1400 || { cat "$WORK/sized" >&2 && fail "pings of 1,428 bytes before"; }
# Below 1280 bytes the kernel disables IPv6 on the TAP; it must come back.
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info 1200
reloaded 'applied .*port.0.mtu'
within 5 tap_mtu_is 1200
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info 1450 1300
reloaded 'applied .*port.0.mtu, port.1.mtu'
has_config port.1.mtu 1300
within 5 tap_mtu_is 1450
within 5 tap_has fd00:1::1/64
ip -n "$router" link show dev link2 | grep -q 'mtu 1300 ' || fail "the device has another MTU"
! reaches 1400 || fail "a packet above the MTU has left"
grep -q 'mtu *= *1300' "$WORK/sized" || { cat "$WORK/sized" >&2 && fail "the sender did not learn the MTU"; }
reaches 1272 || { cat "$WORK/sized" >&2 && fail "pings of 1,300 bytes"; }
configure '"198.18.1.1/24", "fd00:1::1/64", "198.18.1.9/24"' 64 info 1450 9000
reloaded 'can get at most 2022 bytes while it runs'
has_config port.1.mtu 1300
! has_route 198.18.1.9 || fail "a reload whose MTU was refused has added an address"
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info
reloaded 'applied .*port.0.mtu, port.1.mtu'
within 5 tap_mtu_is 1500
reaches 1472 || { cat "$WORK/sized" >&2 && fail "pings of 1,500 bytes after"; }

echo '203.0.113.192/26 via 198.18.2.2 dev 1' >>"$WORK/routes.txt"
reloaded 'applied          nothing'
ip -n "$router" route add 203.0.113.192/26 via 198.18.1.2 dev edge0
kernel_says() { ctl show feeds | grep -q 'kernel.* [1-9]'; }
within 5 kernel_says
leads_to 198.18.2.2 || fail "the route of the files is not preferred"
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info '' '' '"kernel-routes", "fib"'
reloaded 'order of sources [1-9][0-9]* prefixes of several sources'
leads_to 198.18.1.2 || { ctl route get 203.0.113.200 >&2 && fail "the route of the kernel is not preferred"; }
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info '' '' '"fib", "kernel-routes"'
reloaded 'applied          sources.prefer'
leads_to 198.18.2.2 || fail "the route of the files is not preferred again"

kill -INT "$pings"
wait "$pings" || true
# On a busy host the last ones are in flight; all before them must have an answer.
answered=$(grep -c 'bytes from' "$WORK/pings")
last=$(sed -n 's/.*icmp_seq=\([0-9]*\).*/\1/p' "$WORK/pings" | sort -n | tail -n 1)
[ "$answered" = "$last" ] || { cat "$WORK/pings" >&2 && fail "packets were lost to a reload"; }
stop
