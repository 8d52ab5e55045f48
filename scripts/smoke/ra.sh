#!/usr/bin/env bash
# `fwd-app run --tap --kernel-routes`: frames of a host do not configure the router. A router advertisement and redirects of both families change
# neither TAP nor routes, with the TAPs in a namespace or next to the forwarder. If an operator enables advertisements, only the kernel uses them.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"
idle_sleeps

need_taps
two_hosts
ip netns add "$kernel"
ip -n "$kernel" link set lo up

cat >"$WORK/attack.py" <<'PYTHON'
import socket, struct, sys

def address(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)

def prefix(text, lifetime):
    return struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, lifetime, lifetime, 0, address(text))  # on-link, autonomous

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

kind, target = sys.argv[1:]
if kind == "4":
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 1, 0, address("198.18.1.1"), address("203.0.113.9"))
    inner = head + struct.pack("!BBHHH", 0, 0, 0xFFFF, 0, 0)
    message = struct.pack("!BBH4s", 5, 1, 0, address("198.18.1.66")) + inner
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.sendto(message, (target, 0))
else:
    s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    index = socket.if_nametoindex("eth0")
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 255)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    if kind == "6":
        message = struct.pack("!BBHI16s16s", 137, 0, 0, 0, address("fe80::66"), address("2001:db8:7::9"))
        message += struct.pack("!BB6s", 2, 1, bytes.fromhex("02aa00000066"))
    else:
        message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
        message += struct.pack("!BBHI", 5, 1, 0, 1280)
        message += prefix("2001:db8:bad::", 86400) + prefix("2001:db8:bad:1::", 0xFFFFFFFF)
    s.sendto(message, (target, 0, 0, index))
PYTHON
attack() { ip netns exec "$left" python3 "$WORK/attack.py" "$1" "$2"; }

in_kernel() { ip netns exec "$taps" "$@"; }
heard6() { [ "$(in_kernel awk -v name="$1" '$1 == name { print $2 }' /proc/net/snmp6)" -ge "$2" ]; }
heard4() { [ "$(in_kernel awk '/^Icmp:/ { for (i = 2; i <= NF; i++) if (name[i] == "InRedirects") { print $i; exit } else name[i] = $i }' /proc/net/snmp)" -ge "$1" ]; }
up() { in_kernel ip -6 address show dev tap1 | grep -q 'fe80::.*scope link' && ! in_kernel ip -6 address show dev tap1 | grep -q tentative; }
unrouted() {
  local address
  for address in "$@"; do
    ctl route get "$address" >"$WORK/answer"
    says "$WORK/answer" 'no route'
  done
}

attacked() {
  ip netns exec "$router" "$APP" run --kernel-routes --config '(0,0,0),(1,0,0)' --address '0=198.18.1.1/24' --address '0=fd00:1::1/64' \
    --address '1=198.18.2.1/24' --tap '0=tap1' --tap '1=tap2' --ctl "$WORK/ctl" --json "$WORK/report.json" "$@" -- --no-huge -m 256 --no-pci \
    --no-shconf --no-telemetry --file-prefix "smoke-ra-$$" -l 0 --vdev 'net_af_packet1,iface=link1' --vdev 'net_af_packet2,iface=link2' \
    >"$WORK/out" 2>"$WORK/err" &
  process=$!
  forwards
  within 20 up
  eventually 'kernel .*complete' show feeds
  in_kernel ip route add 203.0.113.0/24 via 198.18.1.2
  in_kernel ip neigh replace 198.18.1.66 lladdr 02:aa:00:00:00:66 dev tap1 nud permanent
  from=$(ip -n "$left" -6 -br address show dev eth0 scope link | grep -o 'fe80::[0-9a-f:]*')
  in_kernel ip -6 route add 2001:db8:7::/64 via "$from" dev tap1
  eventually '2001:db8:7::/64 .*via fe80::' route get 2001:db8:7::9
  own=$(in_kernel ip -6 -br address show dev tap1 scope link | grep -o 'fe80::[0-9a-f:]*')

  before=$(in_kernel awk '$1 == "Icmp6InRouterAdvertisements" { print $2 }' /proc/net/snmp6)
  attack advertisement ff02::1
  within 10 heard6 Icmp6InRouterAdvertisements $((before + 1))
  attack 6 "$own"
  within 10 heard6 Icmp6InRedirects 1
  attack 4 198.18.1.1
  within 10 heard4 "$copies"

  in_kernel ip -6 address show dev tap1 >"$WORK/addresses"
  in_kernel ip -6 route show >"$WORK/kernel-routes"
  if grep -q 'bad:' "$WORK/addresses" "$WORK/kernel-routes" || grep -q 'proto ra' "$WORK/kernel-routes"; then
    cat "$WORK/addresses" "$WORK/kernel-routes" >&2
    fail "the kernel has taken the advertisement"
  fi
  in_kernel ip -6 route get 2001:db8:7::9 >"$WORK/said"
  says "$WORK/said" "via $from"
  in_kernel ip route get 203.0.113.9 >"$WORK/said"
  says "$WORK/said" 'via 198.18.1.2 '
  [ "$(in_kernel cat /proc/sys/net/ipv6/conf/tap1/mtu /sys/class/net/tap1/mtu | sort -u)" = 1500 ] || fail "the MTU of tap1 is another one"
  unrouted 2001:db8:bad::1 2001:db8:bad:1::1 2001:db8:ffff::1

  in_kernel sysctl -qw net.ipv6.conf.tap1.accept_ra=2 net.ipv6.conf.tap1.autoconf=1
  attack advertisement ff02::1
  taken() { [ "$(in_kernel ip -6 address show dev tap1 | grep -c 'bad:')" -ge 2 ]; }
  within 10 taken
  # Netlink keeps the order: with this address the forwarder has seen all earlier messages.
  in_kernel ip address add 2001:db8:900d::1/64 dev tap1
  eventually '2001:db8:900d::/64 .*dev 0' route get 2001:db8:900d::9
  unrouted 2001:db8:bad::1 2001:db8:bad:1::1 2001:db8:ffff::1
  ip -n "$left" -6 route replace 2001:db8:bad::/64 dev eth0
  address=$(in_kernel ip -6 -br address show dev tap1 | grep -o '2001:db8:bad:[0-9a-f]\+:[0-9a-f:]*/64' | head -n 1)
  ip netns exec "$left" ping -n -c 1 -W 1 "${address%/64}" >/dev/null 2>&1 && fail "$address is an address of the port"
  stop
}

taps=$kernel copies=1
attacked --tap-netns "$kernel"
note "ra: TAPs in a namespace: not configured by the wire"
# There the kernel also receives frames on net_af_packet's interface, which the forwarder does not protect.
taps=$router copies=2
in_kernel sysctl -qw net.ipv4.conf.link1.accept_redirects=0
attacked
note "ra: TAPs in the forwarder's namespace: not configured by the wire"
