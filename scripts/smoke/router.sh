#!/usr/bin/env bash
# `fwd-app run --address` as a router between two kernel hosts, each in a network namespace of its own: it answers ARP and neighbour
# discovery, finds its neighbours itself, answers ping, and tells traceroute where it is. No `neigh` line, no static entry.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
need_all iproute2 iputils-ping traceroute ethtool
[ -e "$(pkg-config --variable=libdir libdpdk)/librte_net_af_packet.so" ] || skip "this DPDK has no net_af_packet"

left=smoke-left-$$ right=smoke-right-$$ router=smoke-router-$$ process=
cleanup() {
  [ -n "$process" ] && kill "$process" 2>/dev/null && wait "$process" 2>/dev/null
  for space in "$left" "$right" "$router"; do ip netns del "$space" 2>/dev/null; done
  rm -rf "$WORK"
  return 0
}
trap cleanup EXIT
for space in "$left" "$right" "$router"; do ip netns add "$space" 2>/dev/null || skip "network namespaces are not allowed here"; done

veth_host "$left" "$router" link1 1
veth_host "$right" "$router" link2 2
# Behind a gateway: the router resolves the gateway.
printf '%s\n' '203.0.113.0/24 via 198.18.2.2' '2001:db8:9::/64 via fd00:2::2 dev net_af_packet2' >"$WORK/routes"
ip -n "$right" address add 203.0.113.1/32 dev lo
ip -n "$right" address add 2001:db8:9::1/128 dev lo

ip netns exec "$router" "$APP" run --fib "$WORK/routes" --config '(0,0,0),(1,0,0)' --json "$WORK/report.json" \
  --address net_af_packet1=198.18.1.1/24 --address 0=fd00:1::1/64 \
  --address 1=198.18.2.1/24 --address net_af_packet2=fd00:2::1/64 -- \
  --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-router-$$" -l 0 \
  --vdev net_af_packet1,iface=link1 --vdev net_af_packet2,iface=link2 >"$WORK/out" 2>"$WORK/err" &
process=$!

for _ in $(seq 100); do
  grep -q 'forwarding; Ctrl-C stops' "$WORK/err" && break
  kill -0 "$process" 2>/dev/null || { process= && tail -n 20 "$WORK/err" >&2 && fail "fwd-app run ended by itself"; }
  sleep 0.1
done
# The link-local addresses of the hosts are tentative at first.
sleep 2

# on_left COMMAND.. : the command must succeed on the left host.
on_left() {
  if ! ip netns exec "$left" timeout 60 "$@" >"$WORK/said" 2>&1; then
    tail -n 20 "$WORK/said" "$WORK/err" >&2
    fail "$*"
  fi
}

# The router itself, the host beyond, the address behind a gateway. Not one echo may be lost, the first included.
for target in 198.18.1.1 198.18.2.1 198.18.2.2 203.0.113.1 fd00:1::1 fd00:2::1 fd00:2::2 2001:db8:9::1; do
  on_left ping -n -c 20 -i 0.02 -W 3 "$target"
  says "$WORK/said" '20 received, 0% packet loss'
done
for hops in '198.18.1.1 198.18.2.2' 'fd00:1::1 fd00:2::2'; do
  target=${hops#* }
  on_left traceroute -n -I -q 1 -w 2 "$target"
  says "$WORK/said" "^ *1  ${hops% *} "
  says "$WORK/said" "^ *2  $target "
done
# No route, and a host that is not there: the router says so.
for target in 192.0.2.1 198.18.2.77 2001:db8:1::1 fd00:2::77; do
  ip netns exec "$left" ping -n -c 1 -W 6 "$target" >"$WORK/said" 2>&1 && fail "an answer from $target"
  says "$WORK/said" '[Uu]nreachable|No route'
done

kill -INT "$process"
code=0
wait "$process" || code=$?
process=
[ "$code" = 0 ] || { tail -n 20 "$WORK/err" >&2 && fail "exit code $code after Ctrl-C"; }
[ "$(json "$WORK/report.json" packets originated)" -ge 80 ] || fail "fewer packets originated than the router was asked for"
[ "$(json "$WORK/report.json" packets punted)" -ge 80 ] || fail "fewer packets punted than the router was asked"
for reason in ttl_expired no_route no_neighbour; do
  [ "$(json "$WORK/report.json" packets drops "$reason")" -ge 1 ] || fail "nothing was dropped as $reason"
done
