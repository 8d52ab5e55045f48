#!/usr/bin/env bash
# `fwd-app run --vrf` between four hosts: two networks with the same addresses, each reached in its own network alone, by kernel and FRR routes.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_frr.sh"

need_packages frr
need_af_packet

red_left=smoke-redleft-$$ red_right=smoke-redright-$$
cleanup() {
  local space
  end_processes
  for space in "$red_left" "$red_right"; do ip netns del "$space" 2>/dev/null; done
  remove_hosts
}
rename() {
  local number
  for number in 1 2; do
    ip -n "$router" link set "link$number" down
    ip -n "$router" link set "link$number" name "$1$number"
    ip -n "$router" link set "$1$number" up
  done
}
two_hosts
rename main
host "$red_left" 1
host "$red_right" 2
rename red
ip -n "$router" link set lo up
ip -n "$right" address add 203.0.113.1/32 dev lo
ip -n "$red_right" address add 203.0.113.2/32 dev lo
# The kernel's routes to this prefix lead to different links. Without addresses there it cannot verify that the gateways are on them.
kernel_route() { ip -n "$router" route "$1" 203.0.113.0/24 via 198.18.2.2 dev "$2" onlink table "$3"; }
kernel_route add main2 main
kernel_route add red2 10

ip netns exec "$router" "$APP" run --idle-us 100 --kernel-routes --fpm 127.0.0.1:2620 --fpm-user frr --vrf red=2,3 --vrf-table red=10 --ctl "$WORK/ctl" \
  --json "$WORK/report.json" --config '(0,0,0),(1,0,0),(2,0,0),(3,0,0)' \
  --address 0=198.18.1.1/24 --address 0=fd00:1::1/64 --address 1=198.18.2.1/24 --address 1=fd00:2::1/64 --address 0=192.0.2.1/24 \
  --address 2=198.18.1.1/24 --address 2=fd00:1::1/64 --address 3=198.18.2.1/24 --address 3=fd00:2::1/64 -- \
  --no-huge -m 512 --no-pci --no-shconf --no-telemetry --file-prefix "$router" -l 0 \
  --vdev net_af_packet0,iface=main1 --vdev net_af_packet1,iface=main2 --vdev net_af_packet2,iface=red1 --vdev net_af_packet3,iface=red2 \
  >"$WORK/out" 2>"$WORK/err" &
process=$!
forwards

red_no_loss() { (left=$red_left && no_loss "$@"); }
unreachable() { if ip netns exec "$1" ping -n -c 1 -W 2 "$2" >"$WORK/said" 2>&1; then fail "$1 reaches $2"; fi; }

eventually '203.0.113.0/24 .*via 198.18.2.2 dev 1' route get 203.0.113.9
eventually '203.0.113.0/24 .*via 198.18.2.2 dev 3' vrf red route get 203.0.113.9
ctl show vrfs >"$WORK/answer"
says "$WORK/answer" '^red .*net_af_packet2,net_af_packet3'
# The hosts' link-local addresses are tentative at first.
sleep 2

all=(198.18.1.1 198.18.2.1 198.18.2.2 fd00:1::1 fd00:2::1 fd00:2::2)
no_loss "${all[@]}" 203.0.113.1 192.0.2.1
unreachable "$left" 203.0.113.2
red_no_loss "${all[@]}" 203.0.113.2
unreachable "$red_left" 203.0.113.1
unreachable "$red_left" 192.0.2.1

kernel_route del red2 10
eventually 'no route' vrf red route get 203.0.113.9
unreachable "$red_left" 203.0.113.2
no_loss 203.0.113.1
kernel_route add red2 10
eventually '203.0.113.0/24 .*dev 3' vrf red route get 203.0.113.9
red_no_loss 203.0.113.2

frr "$router" staticd <<<'fpm address 127.0.0.1 port 2620'
eventually '^fpm .*connected' show feeds
static() { vty "$router" 'configure terminal' "$1"; }
static 'ip route 203.0.114.0/24 main2'
static 'ip route 203.0.114.0/24 red2 table 10'
eventually '203.0.114.0/24 .*dev 1' route get 203.0.114.9
eventually '203.0.114.0/24 .*dev 3' vrf red route get 203.0.114.9
static 'no ip route 203.0.114.0/24 main2'
eventually 'no route' route get 203.0.114.9
eventually '203.0.114.0/24 .*dev 3' vrf red route get 203.0.114.9
static 'ipv6 route 2001:db8:114::/48 blackhole'
eventually '2001:db8:114::/48 .*blackhole' route get 2001:db8:114::9
ctl set engine sail-m >"$WORK/answer" 2>&1 && fail "an engine without IPv6 took the place of one with IPv6 routes"
grep -q 'set engine sail-m force' "$WORK/answer" || fail "the refusal does not name force"
ctl set engine sail-m force >"$WORK/answer"
eventually '^fpm .*of a family without a table in the engine, 0 refused' show feeds
static 'ip route 203.0.115.0/24 main2'
eventually '203.0.115.0/24 .*dev 1' route get 203.0.115.9
eventually '203.0.114.0/24 .*dev 3' vrf red route get 203.0.114.9
no_loss 198.18.2.2 203.0.113.1
ctl set engine host >"$WORK/answer"
eventually '^fpm .*without a port[^,]*, 0 refused' show feeds
eventually '2001:db8:114::/48 .*blackhole' route get 2001:db8:114::9
no_loss fd00:2::2 203.0.113.1
kill -9 "$(cat "/run/frr/$router/zebra.pid")"
eventually '^fpm .*stale' vrf red show feeds
eventually '203.0.114.0/24 .*dev 3' vrf red route get 203.0.114.9
stop
