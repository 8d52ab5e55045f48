#!/usr/bin/env bash
# The configuration of a running forwarder changes: `ctl reload` and SIGHUP apply addresses (a TAP has them, too), routes and the log level,
# name what needs a restart, and do nothing when anything is wrong. Packets go on between the hosts all the time.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"

[ -c /dev/net/tun ] || skip "no /dev/net/tun"
two_hosts

# configure ADDRESSES-OF-PORT-0 RX-BURST LOG-LEVEL : writes the file.
configure() {
  cat >"$WORK/edge.toml" <<END
[[port]]
device = "0"
tap = "edge0"
addresses = [$1]
[[port]]
device = "1"
addresses = ["198.18.2.1/24", "fd00:2::1/64"]
[ports]
ports = "all"
[sources]
fib = "$WORK/routes.txt"
[forwarder]
rx-burst = $2
log-level = "$3"
END
}
# reloaded PATTERN : the answer to `ctl reload` must match, or the refusal.
reloaded() {
  ctl reload >"$WORK/answer" 2>&1 || true
  grep -q -- "$1" "$WORK/answer" || { cat "$WORK/answer" >&2 && fail "ctl reload does not say: $1"; }
}
has_route() { ctl route get "$1" | grep -q "$1/32"; }
tap_has() { ip -n "$router" -br address show dev edge0 | grep -q "$1"; }

echo '203.0.113.0/24 via 198.18.2.2 dev 1' >"$WORK/routes.txt"
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info
between_hosts net_af_packet --config-file "$WORK/edge.toml"
no_loss 198.18.2.2
ip netns exec "$left" ping -n -q -i 0.05 -w 30 198.18.2.2 >"$WORK/pings" &
pings=$!

configure '"198.18.1.1/24", "fd00:1::1/64", "198.18.1.9/24"' 32 debug
echo '203.0.113.128/25 via 198.18.2.2 dev 1' >>"$WORK/routes.txt"
reloaded 'needs a restart  forwarder.rx-burst'
grep -q 'forwarder.log-level, port.0.addresses' "$WORK/answer" || { cat "$WORK/answer" >&2 && fail "applied keys"; }
has_route 198.18.1.9 || fail "there is no route to the new address"
within 5 tap_has 198.18.1.9/24
on_left ping -n -q -c 1 -W 5 198.18.1.9
ctl route get 203.0.113.129 | grep -q 203.0.113.128/25 || fail "the new route is not there"

# Anything that is wrong changes nothing.
configure '"198.18.1.1/24", "fd00:1::1/64"' 9999 info
reloaded 'edge.toml:1[0-9]: forwarder.rx-burst'
configure '"198.18.1.1/24", "fd00:1::1/64"' 64 info
echo '203.0.113.0/33 1' >>"$WORK/routes.txt"
reloaded 'routes.txt:3'
has_route 198.18.1.9 || fail "a reload that was refused has taken an address"

# SIGHUP does the same.
sed -i '3d' "$WORK/routes.txt"
kill -HUP "$process"
gone() { ! has_route 198.18.1.9 && ! tap_has 198.18.1.9/24; }
within 5 gone

kill -INT "$pings"
wait "$pings" || true
grep -q ' 0% packet loss' "$WORK/pings" || { cat "$WORK/pings" >&2 && fail "packets were lost to a reload"; }
stop
