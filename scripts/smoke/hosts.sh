#!/usr/bin/env bash
# `fwd-app run --address` between two hosts: TCP of both families, path MTU discovery over a narrower link, silent neighbours deleted and found
# again. MEGABYTES in each direction: by default more than 2^16 packets, so that 16-bit counters wrap.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"

MEGABYTES=${MEGABYTES:-100}
two_hosts
printf '203.0.113.0/24 via 198.18.2.2\n' >"$WORK/routes"

cat >"$WORK/transfer.py" <<'PYTHON'
import hashlib, socket, sys, threading

role, address, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
block = b"".join(hashlib.sha512(bytes([n & 255, n >> 8, role == "serve"])).digest() for n in range(4096))
family = socket.AF_INET6 if ":" in address else socket.AF_INET
if role == "serve":
    listener = socket.create_server((address, 5001), family=family)
    print("ready", flush=True)
    connection = listener.accept()[0]
else:
    connection = socket.create_connection((address, 5001), timeout=20)
connection.settimeout(60)
sent, received = hashlib.sha256(), hashlib.sha256()

def send():
    for start in range(0, size, len(block)):
        piece = start.to_bytes(8, "big") + block[8:]
        sent.update(piece)
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)

sender = threading.Thread(target=send)
sender.start()
count = 0
while piece := connection.recv(1 << 18):
    received.update(piece)
    count += len(piece)
sender.join()
print(count, sent.hexdigest(), received.hexdigest())
PYTHON

transfer() {
  local address=$1 server
  rm -f "$WORK/served"
  ip netns exec "$right" timeout 120 python3 "$WORK/transfer.py" serve "$address" "$MEGABYTES" >"$WORK/served" 2>&1 &
  server=$!
  for _ in {1..300}; do grep -qs ready "$WORK/served" && break; sleep 0.1; done
  ip netns exec "$left" timeout 120 python3 "$WORK/transfer.py" connect "$address" "$MEGABYTES" >"$WORK/said" 2>&1 ||
    { tail -n 5 "$WORK/said" "$WORK/served" "$WORK/err" >&2 && fail "TCP to $address"; }
  wait "$server" || fail "TCP from $address"
  python3 - "$WORK/said" "$WORK/served" "$MEGABYTES" <<'PYTHON' || fail "what arrived is not what was sent to $address"
import sys
left, right = ([line.split() for line in open(path)][-1] for path in sys.argv[1:3])
size = int(sys.argv[3]) << 20
sys.exit(not (int(left[0]) == int(right[0]) == size and left[1] == right[2] and left[2] == right[1]))
PYTHON
}

knows() { ctl show neigh | grep -qE " $1 +[0-9a-f]{2}:"; }
unknown() { ! knows "$1"; }

for driver in net_af_packet net_af_xdp; do
  forward "$driver" --fib "$WORK/routes" --neigh-age 1
  # The hosts' link-local addresses are tentative at first.
  sleep 2
  no_loss 198.18.2.2 fd00:2::2
  transfer 198.18.2.2
  transfer fd00:2::2
  [ "$driver" = net_af_xdp ] && break

  ip -n "$right" address del 198.18.2.2/24 dev eth0
  ip -n "$right" address del fd00:2::2/64 dev eth0
  for address in 198.18.2.2 fd00:2::2; do within 30 unknown "$address"; done
  ! grep 'link down' "$WORK/err" || fail 'a link went down by itself'
  ip -n "$right" link set eth0 down
  within 5 grep -q '(net_af_packet2): link down' "$WORK/err"
  ip -n "$right" link set eth0 address 02:aa:00:00:00:77 up
  within 5 grep -q '(net_af_packet2): link up' "$WORK/err"
  ip -n "$right" address add 198.18.2.2/24 dev eth0
  ip -n "$right" address replace fd00:2::2/64 dev eth0 nodad
  ip -n "$right" route replace default via 198.18.2.1
  ip -n "$right" route replace default via fd00:2::1
  for address in 198.18.2.2 fd00:2::2; do
    within 20 ip netns exec "$left" ping -n -c 1 -W 1 "$address" >/dev/null
    ctl show neigh >"$WORK/said"
    says "$WORK/said" " $address +02:aa:00:00:00:77 "
  done
  stop

  # A link of 1,400 bytes. The right host accepts whole segments, so the left one needs path MTU discovery.
  ip -n "$right" link set eth0 mtu 1400
  ip -n "$router" link set link2 mtu 1400
  ip -n "$right" route change default via 198.18.2.1 advmss 1460
  ip -n "$right" route change default via fd00:2::1 advmss 1440
  forward "$driver" --fib "$WORK/routes"
  sleep 2
  for address in 198.18.2.2 fd00:2::2; do
    transfer "$address"
    ip -n "$left" route get "$address" >"$WORK/said"
    says "$WORK/said" 'mtu 1400'
  done
  stop
  [ "$(json "$WORK/report.json" packets drops mtu_exceeded)" -ge 2 ] || fail "no segment was too long"
  ip -n "$right" link set eth0 mtu 1500
  ip -n "$router" link set link2 mtu 1500
done
