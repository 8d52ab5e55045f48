#!/usr/bin/env bash
# `fwd-app run --tap`: packets that the router does not answer reach the kernel through TAPs, and the kernel's packets reach the hosts: TCP,
# ICMP port unreachable, addresses that come and go. Deleting a TAP loses only its packets.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"
idle_sleeps

need_taps
two_hosts
ip netns add "$kernel"
printf '# no routes\n' >"$WORK/routes"
ip -n "$kernel" link set lo up

arguments=(run --fib "$WORK/routes" --config '(0,0,0),(1,0,0)' --address '0=198.18.1.1/24'
  --address '0=fd00:1::1/64' --address '1=198.18.2.1/24' --address '1=fd00:2::1/64' --tap '0=tap1' --tap 'net_af_packet2=tap2')
eal=(--no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-tap-$$" -l 0
  --vdev 'net_af_packet1,iface=link1' --vdev 'net_af_packet2,iface=link2')

ip -n "$kernel" link add tap2 type veth peer name other
expect 1 ip netns exec "$router" "$APP" "${arguments[@]}" --tap-netns "$kernel" -- "${eal[@]}"
says "$WORK/err" 'tap2: cannot make the TAP: this name belongs to an interface of the kind veth'
ip -n "$kernel" link del tap2
ip netns exec "$kernel" ip tuntap add dev tap2 mode tap
expect 1 ip netns exec "$router" "$APP" "${arguments[@]}" --tap-persist --tap-netns "$kernel" -- "${eal[@]}"
says "$WORK/err" 'tap2: cannot make the TAP: this name belongs to a TAP of no user'
ip -n "$kernel" link show dev tap1 >/dev/null 2>&1 && fail "tap1 has stayed though the start failed"
ip -n "$kernel" link del tap2
expect 1 ip netns exec "$router" "$APP" "${arguments[@]}" --tap-netns "none-$$" -- "${eal[@]}"
says "$WORK/err" "cannot enter the network namespace /run/netns/none-$$"

ip netns exec "$router" "$APP" "${arguments[@]}" --tap-netns "$kernel" --ctl "$WORK/ctl" --json "$WORK/report.json" -- "${eal[@]}" \
  >"$WORK/out" 2>"$WORK/err" &
process=$!
for _ in {1..100}; do
  ctl show config >/dev/null 2>&1 && break
  kill -0 "$process" 2>/dev/null || { process= && tail -n 20 "$WORK/err" >&2 && fail "fwd-app run ended by itself"; }
  sleep 0.1
done
ctl show config >"$WORK/config" || fail "no answer"
says "$WORK/config" 'tap1'
# The link-local addresses are tentative at first.
sleep 2

on() {
  local space=$1
  shift
  if ! ip netns exec "$space" timeout 60 "$@" >"$WORK/said" 2>&1; then
    tail -n 20 "$WORK/said" "$WORK/err" >&2
    fail "$*"
  fi
}

on "$kernel" ip -j address show dev tap1
python3 - "$WORK/said" <<'PYTHON' || fail "tap1 is not what port 0 is"
import json, sys
[tap] = json.load(open(sys.argv[1]))
assert tap["address"] == "02:f0:00:00:01:01" and tap["mtu"] == 1500 and "LOWER_UP" in tap["flags"], tap
assert {("198.18.1.1", 24), ("fd00:1::1", 64)} < {(at["local"], at["prefixlen"]) for at in tap["addr_info"]}, tap
PYTHON

cat >"$WORK/tcp.py" <<'PYTHON'
import socket, sys, time
mode, address, ttl = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
option = (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) if family == socket.AF_INET6 else (socket.IPPROTO_IP, socket.IP_TTL)
def limited(s):
    s.settimeout(20)
    s.setsockopt(*option, ttl)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
if mode == "serve":
    listener = limited(socket.socket(family, socket.SOCK_STREAM))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 179))
    listener.listen()
    print("ready", flush=True)
    peer = limited(listener.accept()[0])
    while data := peer.recv(1 << 16):
        peer.sendall(data)
else:
    for attempt in range(50):
        try:
            s = limited(socket.socket(family, socket.SOCK_STREAM))
            s.connect((address, 179))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    times = []
    for _ in range(200):
        start = time.monotonic()
        s.sendall(b"x")
        assert s.recv(1) == b"x"
        times.append(time.monotonic() - start)
    total, got, start = 4 << 20, 0, time.monotonic()
    for _ in range(total >> 16):
        s.sendall(bytes(1 << 16))
        need = 1 << 16
        while need:
            need -= len(s.recv(need))
    times.sort()
    print(f"{times[100] * 1e6:.0f} us median, {times[-1] * 1e6:.0f} us at most; 4 MiB and back in {time.monotonic() - start:.2f} s")
PYTHON

# tcp SERVER-SPACE ADDRESS CLIENT-SPACE : bytes go both ways, with TTL 1 as in eBGP.
tcp() {
  ip netns exec "$1" timeout 60 python3 "$WORK/tcp.py" serve "$2" 1 >"$WORK/served" 2>&1 &
  local server=$!
  on "$3" python3 "$WORK/tcp.py" ask "$2" 1
  note "tap: TCP to $2 by $3: $(cat "$WORK/said")"
  wait "$server" || fail "the server at $2"
}
tcp "$kernel" 198.18.1.1 "$left"
tcp "$kernel" fd00:1::1 "$left"
tcp "$right" 198.18.2.2 "$kernel"
tcp "$right" fd00:2::2 "$kernel"

on "$left" python3 - <<'PYTHON'
import socket
for family, address in (socket.AF_INET, "198.18.1.1"), (socket.AF_INET6, "fd00:1::1"):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect((address, 9))
    s.send(b"x")
    try:
        s.recv(1)
        raise SystemExit(f"{address}: an answer")
    except ConnectionRefusedError:
        pass
PYTHON
ready() {
  for _ in {1..50}; do grep -qs ready "$1" && return; sleep 0.1; done
}
ip netns exec "$kernel" timeout 20 python3 -c '
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 89)
s.settimeout(10)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s4x", socket.inet_aton("224.0.0.5"), socket.inet_aton("198.18.1.1")))
print("ready", flush=True)
assert s.recv(100).endswith(b"hello")' >"$WORK/group" 2>&1 &
group=$!
ready "$WORK/group"
on "$left" python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 89)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("198.18.1.2"))
s.sendto(b"hello", ("224.0.0.5", 0))'
wait "$group" || { cat "$WORK/group" >&2 && fail "224.0.0.5 has not reached the kernel"; }

# LLDP, which is not IP, stays on the link, so its daemon is behind the TAP.
cat >"$WORK/lldp.py" <<'PYTHON'
import socket, sys
role, name = sys.argv[1:]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88CC))
s.bind((name, 0x88CC))
if role == "listen":
    s.settimeout(10)
    print("ready", flush=True)
    assert s.recv(100)[14:19] == b"hello"
else:
    s.send(bytes.fromhex("0180c200000e") + s.getsockname()[4] + b"\x88\xcchello" + bytes(41))
PYTHON
lldp() {
  rm -f "$WORK/heard"
  ip netns exec "$3" timeout 20 python3 "$WORK/lldp.py" listen "$4" >"$WORK/heard" 2>&1 &
  local listener=$!
  ready "$WORK/heard"
  on "$1" python3 "$WORK/lldp.py" send "$2"
  wait "$listener" || { cat "$WORK/heard" >&2 && fail "LLDP from $2 has not reached $4"; }
}
lldp "$left" eth0 "$kernel" tap1
lldp "$kernel" tap1 "$left" eth0

# An address on the TAP is the port's until it is deleted; an address of a loopback interface is the router's on every port.
on "$left" ip route add 203.0.113.1/32 via 198.18.1.1
for device in tap1 lo; do
  for family_address in 203.0.113.1/32 fd00:1::77/128; do
    address=${family_address%/*}
    ip netns exec "$left" ping -n -c 1 -W 1 "$address" >/dev/null 2>&1 && fail "$address answers too early"
    on "$kernel" ip address add "$family_address" dev "$device"
    on "$left" ping -n -c 20 -i 0.1 -W 5 "$address"
    says "$WORK/said" ' ([1-9]|1[0-9]|20) received'
    "$APP" ctl --socket "$WORK/ctl" show addresses >"$WORK/said"
    says "$WORK/said" " $family_address +$([ "$device" = lo ] && echo loopback || echo tap) +tap1 "
    tcp "$kernel" "$address" "$left"
    on "$kernel" ip address del "$family_address" dev "$device"
    sleep 0.5
    ip netns exec "$left" ping -n -c 1 -W 1 "$address" >/dev/null 2>&1 && fail "$address answers too long"
  done
done

cat >"$WORK/announce.py" <<'PYTHON'
import socket, sys
name, address, mac = sys.argv[1:]
mac = bytes.fromhex(mac.replace(":", ""))
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((name, 0))
if ":" in address:
    address = socket.inet_pton(socket.AF_INET6, address)
    group = socket.inet_pton(socket.AF_INET6, "ff02::1")
    message = bytes.fromhex("8800000020000000") + address + bytes.fromhex("0201") + mac
    pseudo = address + group + len(message).to_bytes(4, "big") + bytes.fromhex("0000003a")
    total = sum(int.from_bytes((pseudo + message)[at:at + 2], "big") for at in range(0, len(pseudo + message), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    message = message[:2] + (~total & 0xFFFF).to_bytes(2, "big") + message[4:]
    header = bytes.fromhex("60000000") + len(message).to_bytes(2, "big") + bytes.fromhex("3aff") + address + group
    s.send(bytes.fromhex("333300000001") + mac + bytes.fromhex("86dd") + header + message)
else:
    address = socket.inet_aton(address)
    s.send(bytes.fromhex("ffffffffffff") + mac + bytes.fromhex("0806000108000604") + bytes.fromhex("0001")
           + mac + address + bytes(6) + address + bytes(18))
PYTHON
before=$(ip netns exec "$left" cat /sys/class/net/eth0/address)
for address in 198.18.1.2 fd00:1::2; do
  on "$kernel" ping -n -c 1 -W 3 "$address"
  # Linux accepts no second MAC of a neighbour within a second.
  sleep 1.2
  on "$left" python3 "$WORK/announce.py" eth0 "$address" 02:f0:00:00:09:09
  for _ in {1..30}; do ip -n "$kernel" neigh show "$address" dev tap1 >"$WORK/said" && grep -q '02:f0:00:00:09:09' "$WORK/said" && break; sleep 0.1; done
  says "$WORK/said" '02:f0:00:00:09:09'
  sleep 1.2
  on "$left" python3 "$WORK/announce.py" eth0 "$address" "$before"
  on "$kernel" ping -n -c 20 -i 0.1 -W 3 "$address"
  says "$WORK/said" ' ([1-9]|1[0-9]|20) received'
done

on "$left" ping -n -c 5 -i 0.05 -W 3 198.18.2.2
ip -n "$kernel" link del tap1
python3 - "$left" <<'PYTHON'
import subprocess, sys
text = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range(10): s.sendto(b'x', ('198.18.1.1', 9))"
subprocess.run(["ip", "netns", "exec", sys.argv[1], "python3", "-c", text], check=True)
PYTHON
on "$left" ping -n -c 20 -i 0.02 -W 3 198.18.2.2
says "$WORK/said" '20 received, 0% packet loss'
on "$left" ping -n -c 20 -i 0.02 -W 3 198.18.1.1
says "$WORK/said" '20 received, 0% packet loss'
tcp "$kernel" fd00:2::1 "$right"

ip -n "$kernel" -br link show dev tap2 >"$WORK/said"
says "$WORK/said" 'LOWER_UP'
ip -n "$right" link set eth0 down
for _ in {1..50}; do ip -n "$kernel" -br link show dev tap2 >"$WORK/said" && grep -q 'NO-CARRIER' "$WORK/said" && break; sleep 0.1; done
says "$WORK/said" 'NO-CARRIER'

stop
# A TAP may be down for a moment before it is deleted, and then takes no frames.
warned=$(grep 'TAP tap1' "$WORK/err" | grep -v 'takes no frames: Input/output error' || true)
[[ $warned =~ 'TAP tap1'.*' was deleted' && $warned != *$'\n'* ]] || { cat "$WORK/err" >&2 && fail "not one warning that tap1 was deleted"; }
[ "$(json "$WORK/report.json" packets drops punt_full)" -ge 10 ] || fail "packets for the deleted TAP were not counted"
on "$kernel" ip link show
! grep -q tap2 "$WORK/said" || fail "tap2 is still there"
