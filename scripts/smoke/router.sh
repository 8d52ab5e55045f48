#!/usr/bin/env bash
# `fwd-app run --address` as a router between two kernel hosts: it answers ARP and neighbour discovery, finds its neighbours itself,
# answers ping, and tells traceroute where it is. No `neigh` line, no static entry.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"

need_all traceroute
two_hosts
# Behind a gateway: the router resolves the gateway.
printf '%s\n' '203.0.113.0/24 via 198.18.2.2' '2001:db8:9::/64 via fd00:2::2 dev net_af_packet2' 'unreachable 198.51.100.0/25' \
  'prohibit 198.51.100.128/25' 'unreachable 2001:db8:2::/48' 'prohibit 2001:db8:3::/48' >"$WORK/routes"
ip -n "$right" address add 203.0.113.1/32 dev lo
ip -n "$right" address add 2001:db8:9::1/128 dev lo
forward net_af_packet --fib "$WORK/routes"
# The link-local addresses of the hosts are tentative at first.
sleep 2

# The router itself, the host beyond, the address behind a gateway.
no_loss 198.18.1.1 198.18.2.1 198.18.2.2 203.0.113.1 fd00:1::1 fd00:2::1 fd00:2::2 2001:db8:9::1

for hops in '198.18.1.1 198.18.2.2' 'fd00:1::1 fd00:2::2'; do
  target=${hops#* }
  on_left traceroute -n -I -q 1 -w 2 "$target"
  says "$WORK/said" "^ *1  ${hops% *} "
  says "$WORK/said" "^ *2  $target "
done
# No route, a host that is not there, and routes that drop: the router says so.
while read -r target why; do
  ip netns exec "$left" ping -n -c 1 -W 6 "$target" >"$WORK/said" 2>&1 && fail "an answer from $target"
  says "$WORK/said" "$why"
done <<'END'
192.0.2.1 Destination Net Unreachable
198.18.2.77 Destination Host Unreachable
198.51.100.1 Destination Host Unreachable
198.51.100.129 Packet filtered
2001:db8:1::1 No route
fd00:2::77 Address unreachable
2001:db8:2::1 No route
2001:db8:3::1 Administratively prohibited
END

# The table of neighbours. What is cleared is resolved again: the gateway at once, the others by the next packet.
for address in 198.18.2.2 fd00:2::2 198.18.1.2; do
  ctl show neigh >"$WORK/said"
  says "$WORK/said" "^ *$address +[0-9a-f:]{17} +[01] +learned +(REACHABLE|STALE|DELAY|PROBE) +[0-9]+ s$"
  ctl clear neigh "$address"
done
ctl clear neigh 198.18.2.99 2>/dev/null && fail "a neighbour that is not known was cleared"
no_loss 198.18.2.2 fd00:2::2 203.0.113.1
ctl clear neigh
no_loss 198.18.2.2 fd00:2::2 203.0.113.1

stop
[ "$(json "$WORK/report.json" packets originated)" -ge 80 ] || fail "fewer packets originated than the router was asked for"
[ "$(json "$WORK/report.json" packets punted)" -ge 80 ] || fail "fewer packets punted than the router was asked"
for reason in ttl_expired no_route unreachable prohibited no_neighbour; do
  [ "$(json "$WORK/report.json" packets drops "$reason")" -ge 1 ] || fail "nothing was dropped as $reason"
done
