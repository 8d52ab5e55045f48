#!/usr/bin/env bash
# `fwd-app run` as a router between two kernel hosts, each in a network namespace of its own: IPv4 and IPv6 echoes pass through it.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
has ip || skip "no ip (package iproute2)"
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

# host SPACE INTERFACE NUMBER MAC : makes a host with one link to the router. Its neighbour entries are static, since the router does
# not speak ARP.
host() {
  local space=$1 interface=$2 number=$3 mac=$4 at
  ip -n "$router" link add "$interface" address "02:f0:00:00:01:0$number" type veth peer name eth0 netns "$space" address "$mac" ||
    skip "no veth in this kernel"
  at=(ip -n "$space")
  ip -n "$router" link set "$interface" up
  "${at[@]}" link set lo up
  "${at[@]}" link set eth0 up
  "${at[@]}" address add "198.18.$number.2/24" dev eth0
  "${at[@]}" address add "fd00:$number::2/64" dev eth0 nodad
  "${at[@]}" neigh replace "198.18.$number.1" lladdr "02:f0:00:00:01:0$number" dev eth0 nud permanent
  "${at[@]}" neigh replace "fd00:$number::1" lladdr "02:f0:00:00:01:0$number" dev eth0 nud permanent
  "${at[@]}" route add default via "198.18.$number.1"
  "${at[@]}" route add default via "fd00:$number::1"
  cat >>"$WORK/routes" <<ROUTES
198.18.$number.0/24 via 198.18.$number.2 dev net_af_packet$number
fd00:$number::/64 via fd00:$number::2 dev net_af_packet$number
neigh 198.18.$number.2 lladdr $mac dev net_af_packet$number
neigh fd00:$number::2 lladdr $mac dev net_af_packet$number
ROUTES
}
host "$left" link1 1 02:aa:00:00:00:01
host "$right" link2 2 02:aa:00:00:00:02

ip netns exec "$router" "$APP" run --fib "$WORK/routes" --config '(0,0,0),(1,0,0)' --json "$WORK/report.json" -- \
  --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-hosts-$$" -l 0 \
  --vdev net_af_packet1,iface=link1 --vdev net_af_packet2,iface=link2 >"$WORK/out" 2>"$WORK/err" &
process=$!

sleep 1
kill -0 "$process" 2>/dev/null || { process= && tail -n 20 "$WORK/err" >&2 && fail "fwd-app run ended by itself"; }

# Sends echo requests itself, since ping is not installed everywhere: waits for the first answer, then counts 50 more.
cat >"$WORK/ping.py" <<'PYTHON'
import socket, struct, sys, time

target, v6 = sys.argv[1], ":" in sys.argv[1]
sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, 58 if v6 else 1)
sock.settimeout(0.2)

def echo(sequence):
    data = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, 4242, sequence) + b"smoke" * 8
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    # The kernel fills in ICMPv6's checksum, not ICMP's.
    sock.sendto(data if v6 else data[:2] + struct.pack("!H", ~total & 0xFFFF) + data[4:], (target, 0))
    until = time.monotonic() + 1
    while time.monotonic() < until:
        try:
            answer = sock.recv(2048)
        except TimeoutError:
            continue
        answer = answer if v6 else answer[20:]
        if answer[0] == (129 if v6 else 0) and answer[4:8] == struct.pack("!HH", 4242, sequence):
            return True
    return False

if not any(echo(0) for _ in range(30)):
    sys.exit(f"no answer from {target}")
answers = sum(echo(sequence) for sequence in range(1, 51))
print(f"{target}: {answers} of 50 answers")
sys.exit(answers != 50)
PYTHON
for target in 198.18.2.2 fd00:2::2; do
  if ! ip netns exec "$left" timeout 120 python3 "$WORK/ping.py" "$target"; then
    tail -n 20 "$WORK/out" "$WORK/err" >&2
    fail "echo to $target"
  fi
done

kill -INT "$process"
code=0
wait "$process" || code=$?
process=
[ "$code" = 0 ] || { tail -n 20 "$WORK/err" >&2 && fail "exit code $code after Ctrl-C"; }
[ "$(json "$WORK/report.json" packets tx)" -ge 204 ] || fail "fewer packets sent than echoes and answers"
