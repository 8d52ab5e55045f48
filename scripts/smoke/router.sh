#!/usr/bin/env bash
# `fwd-app run --address` as a router between two kernel hosts: ARP, neighbour discovery, ping, traceroute, fragments; no static entry.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"

need_packages traceroute
two_hosts
printf '%s\n' '203.0.113.0/24 via 198.18.2.2' '2001:db8:9::/64 via fd00:2::2 dev net_af_packet2' 'unreachable 198.51.100.0/25' \
  'prohibit 198.51.100.128/25' 'unreachable 2001:db8:2::/48' 'prohibit 2001:db8:3::/48' >"$WORK/routes"
ip -n "$right" address add 203.0.113.1/32 dev lo
ip -n "$right" address add 2001:db8:9::1/128 dev lo
forward net_af_packet --fib "$WORK/routes"
# The hosts' link-local addresses are tentative at first.
sleep 2

no_loss 198.18.1.1 198.18.2.1 198.18.2.2 203.0.113.1 fd00:1::1 fd00:2::1 fd00:2::2 2001:db8:9::1

for hops in '198.18.1.1 198.18.2.2' 'fd00:1::1 fd00:2::2'; do
  target=${hops#* }
  on_left traceroute -n -I -q 1 -w 2 "$target"
  says "$WORK/said" "^ *1  ${hops% *} "
  says "$WORK/said" "^ *2  $target "
done
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

for address in 198.18.2.2 fd00:2::2 198.18.1.2; do
  ctl show neigh >"$WORK/said"
  says "$WORK/said" " $address +[0-9a-f:]{17} +learned +(REACHABLE|STALE|DELAY|PROBE) +[0-9]+ s$"
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

# Packets are fragmented, or the sender gets the MTU. Not with net_af_packet: the kernel reassembles fragments into frames above its buffers.
ip -n "$right" link set eth0 mtu 1400
ip -n "$router" link set link2 mtu 1400
echo '203.0.113.0/24 via 198.18.2.2' >"$WORK/routes"
forward net_af_xdp --fib "$WORK/routes" --mtu net_af_xdp2=1400
sleep 2
for bytes in 1373 1472 3000 20000; do
  on_left ping -n -q -c 5 -i 0.2 -W 20 -M dont -s "$bytes" 198.18.2.2
  says "$WORK/said" ' 5 received'
done
ip netns exec "$left" ping -n -c 1 -W 6 -M "do" -s 1400 198.18.2.2 >"$WORK/said" 2>&1 && fail "a packet above the MTU passed"
says "$WORK/said" 'mtu ?= ?1400'
stop
[ "$(json "$WORK/report.json" packets fragmented)" -ge 80 ] || fail "fewer packets were fragmented than were too long"
[ "$(json "$WORK/report.json" packets drops mtu_exceeded)" -eq 1 ] || fail "packets were dropped that may be fragmented"
