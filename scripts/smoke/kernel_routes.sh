#!/usr/bin/env bash
# `fwd-app run --kernel-routes`: the forwarder follows routes and neighbours of `ip`. A route over an interface without a port does not fall
# through to a shorter one, and an engine without IPv6 still takes IPv4 routes.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
idle_sleeps

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
has ip || skip "no ip (package iproute2)"
need_af_packet

space=smoke-kernel-$$
cleanup() {
  [ -n "$process" ] && kill "$process" 2>/dev/null && wait "$process" 2>/dev/null
  ip netns del "$space" 2>/dev/null
}
or_skip ip netns add "$space"

at=(ip -n "$space")
"${at[@]}" link set lo up
for number in 0 1; do
  or_skip "${at[@]}" link add "v$number" type veth peer name "w$number"
  "${at[@]}" link set "w$number" up
  "${at[@]}" link set "v$number" up
  "${at[@]}" address add "192.0.$number.1/24" dev "v$number"
  "${at[@]}" address add "2001:db8:$number::1/64" dev "v$number" nodad
done
printf '203.0.113.0/24 77\n' >"$WORK/routes"

begin() {
  ip netns exec "$space" "$APP" run --fib "$WORK/routes" --kernel-routes --kernel-interface 1=v1 --ctl "$WORK/ctl" "$@" \
    --config '(0,0,0),(1,0,0)' --json "$WORK/report.json" -- \
    --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-kernel-$$" -l 0 \
    --vdev net_af_packet0,iface=v0 --vdev net_null1,no-rx=1 >"$WORK/out" 2>"$WORK/err" &
  process=$!
}
begin

eventually 'kernel .*complete' show feeds
eventually '192.0.0.0/24 .*dev 0' route get 192.0.0.9
eventually '192.0.1.0/24 .*dev 1' route get 192.0.1.9
"${at[@]}" route add 10.1.0.0/16 via 192.0.0.2
"${at[@]}" route add 10.2.0.0/16 via inet6 2001:db8:1::2 dev v1
"${at[@]}" route add blackhole 10.3.0.0/16
"${at[@]}" route add prohibit 10.4.0.0/16
"${at[@]}" route add 203.0.113.0/24 via 192.0.0.2
"${at[@]}" -6 route add 2001:db8:9::/48 via 2001:db8:1::2
eventually '10.1.0.0/16 .*via 192.0.0.2 dev 0' route get 10.1.2.3
eventually '10.2.0.0/16 .*via 2001:db8:1::2 dev 1' route get 10.2.2.3
eventually '10.3.0.0/16 .*blackhole' route get 10.3.2.3
eventually '10.4.0.0/16 .*prohibit' route get 10.4.2.3
eventually '2001:db8:9::/48 .*via 2001:db8:1::2 dev 1' route get 2001:db8:9::1
eventually '203.0.113.0/24 .*id 77' route get 203.0.113.1
eventually ' 0 without a port' show feeds

"${at[@]}" tuntap add wg0 mode tun
"${at[@]}" link set wg0 up
"${at[@]}" route add default via 192.0.1.2
"${at[@]}" route add 10.8.0.0/16 dev wg0
eventually '10.8.0.0/16 .*unreachable' route get 10.8.2.3
eventually '0.0.0.0/0 .*via 192.0.1.2 dev 1' route get 10.9.2.3
eventually '1 without a port \(1 unreachable\)' show feeds
says "$WORK/err" 'kernel: the route 10.8.0.0/16 leads over wg0, which has no port'
"${at[@]}" route del default

ctl route add 10.1.0.0/16 99
eventually '10.1.0.0/16 .*id 99' route get 10.1.2.3
ctl route del 10.1.0.0/16
eventually '10.1.0.0/16 .*via 192.0.0.2 dev 0' route get 10.1.2.3

"${at[@]}" neigh replace 192.0.0.2 lladdr 02:aa:00:00:00:02 dev v0 nud permanent
eventually 'net_[a-z_0-9]+ +192.0.0.2 +02:aa:00:00:00:02 +kernel' show neigh
"${at[@]}" neigh del 192.0.0.2 dev v0
for _ in {1..100}; do
  ctl show neigh | grep -q ' 192.0.0.2 .*kernel' || break
  sleep 0.1
done
ctl show neigh | grep -q ' 192.0.0.2 .*kernel' && fail "a neighbour that is gone is still there"

"${at[@]}" route replace 10.1.0.0/16 via 192.0.1.2
eventually '10.1.0.0/16 .*via 192.0.1.2 dev 1' route get 10.1.2.3
"${at[@]}" route del 10.1.0.0/16
"${at[@]}" -6 route del 2001:db8:9::/48
eventually 'no route' route get 10.1.2.3
eventually 'no route' route get 2001:db8:9::1

# Of two equal routes the kernel uses the first. Routes follow their next-hop objects, whether or not its messages list the paths of objects.
"${at[@]}" route add 10.5.0.0/16 via 192.0.0.5
"${at[@]}" route append 10.5.0.0/16 via 192.0.1.5
"${at[@]}" route add 10.55.0.0/16 via 192.0.0.5
eventually '10.55.0.0/16' route get 10.55.2.3 # so both are taken
eventually '10.5.0.0/16 .*via 192.0.0.5 dev 0' route get 10.5.2.3
"${at[@]}" route del 10.5.0.0/16 via 192.0.0.5
eventually '10.5.0.0/16 .*via 192.0.1.5 dev 1' route get 10.5.2.3
for mode in 1 0; do
  ip netns exec "$space" sysctl -qw "net.ipv4.nexthop_compat_mode=$mode"
  "${at[@]}" nexthop add id 1 via 192.0.0.2 dev v0
  "${at[@]}" nexthop add id 2 via 192.0.1.2 dev v1
  "${at[@]}" nexthop add id 3 group 1/2
  "${at[@]}" route add 10.6.0.0/16 nhid 3
  eventually '10.6.0.0/16 .*via 192.0.0.2 dev 0 .*via 192.0.1.2 dev 1' route get 10.6.2.3
  "${at[@]}" nexthop del id 1
  eventually '10.6.0.0/16 .*\(via 192.0.1.2 dev 1\)' route get 10.6.2.3
  "${at[@]}" nexthop del id 2
  eventually 'no route' route get 10.6.2.3
done
"${at[@]}" link set v1 down
eventually 'no route' route get 10.2.2.3
"${at[@]}" link set v1 up
eventually '192.0.1.0/24 .*dev 1' route get 192.0.1.9

stop

"${at[@]}" route add default via 192.0.1.2
begin --engine sail-m --foreign-routes ignore
eventually '192.0.0.0/24 .*dev 0' route get 192.0.0.9
eventually '0.0.0.0/0 .*via 192.0.1.2 dev 1' route get 10.8.2.3
eventually '1 without a port, [1-9][0-9]* of a family without a table in the engine, 0 refused' show feeds
says "$WORK/err" 'engine sail-m has no table for ipv6'
stop
