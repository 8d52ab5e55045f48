#!/usr/bin/env bash
# `fwd-app run --tap-persist`: the forwarder is restarted while bgpd has a session through its ports. The session must not go down, all routes
# must come back, and the loss of a paced flow measures the outage. Addresses on a TAP that are no longer configured are removed; addresses
# set by others stay.
#
# TAP_PERSIST=no leaves the option out, LINK_DETECT=yes leaves out the settings of zebra that keep the session: for comparison, without a
# check of the session. ROUTES changes their number, OPTIONS adds options of the forwarder.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_frr.sh"

need_taps
need_packages frr bird2

ROUTES=${ROUTES:-20000} TAP_PERSIST=${TAP_PERSIST:-yes} LINK_DETECT=${LINK_DETECT:-no}
RATE_PPS=1000
read -ra more <<<"${OPTIONS:-}"
daemons=smoke-frr-$$
cleanup() {
  end_processes
  [ -z "$process" ] || { kill -9 "$process" && wait "$process"; } 2>/dev/null
  process=
  ip netns del "$daemons" 2>/dev/null
  remove_hosts
}
two_hosts
ip netns add "$daemons"
ip -n "$daemons" link set lo up
ip -n "$left" address add 20.0.1.1 dev lo

{
  printf 'log stderr { fatal };\nrouter id 198.18.1.2;\nprotocol device {}\nprotocol static { ipv4;\n'
  for ((n = 0; n < ROUTES; n++)); do printf 'route %s.%s.%s.0/24 blackhole;\n' $((20 + (n >> 16))) $((n >> 8 & 255)) $((n & 255)); done
  printf '}\nprotocol bgp { local 198.18.1.2 as 65002; neighbor 198.18.1.1 as 65001; direct; ipv4 { import none; next hop self; export all; }; }\n'
} >"$WORK/bird.conf"

start_forwarder() {
  rm -f "$WORK/err"
  [ "$TAP_PERSIST" = no ] || set -- --tap-persist "$@"
  between_hosts net_af_packet --fpm 127.0.0.1:2620 --fpm-user frr --tap 0=tap0 --tap 1=tap1 --tap-netns "$daemons" \
    --address 0=198.18.1.1/24 --address 1=198.18.2.1/24 "${more[@]}" "$@"
}
has_routes() {
  ctl --json --timeout 10 show feeds 2>/dev/null | python3 -c 'import json, sys
feed = next(feed for feed in json.load(sys.stdin) if feed["feed"] == "fpm")
sys.exit(feed["routes"] - feed["stale"] < int(sys.argv[1]))' "$ROUTES"
}
session() {
  vty "$daemons" 'show bgp neighbors json' 2>/dev/null | python3 -c 'import json, sys
peer = json.load(sys.stdin)["198.18.1.2"]
peer["bgpState"] == "Established" or sys.exit(1)
print(peer["connectionsEstablished"], peer["connectionsDropped"])' 2>/dev/null
}
is_established() { session >"$WORK/session" 2>/dev/null; }

start_forwarder --address 0=198.18.7.1/24
ip -n "$daemons" address add 198.51.100.1/24 dev tap0
frr "$daemons" bgpd <<CONF
fpm address 127.0.0.1 port 2620
$([ "$LINK_DETECT" = yes ] || cat <<'KEEP'
no fpm use-next-hop-groups
no zebra nexthop kernel enable
interface tap0
 no link-detect
exit
interface tap1
 no link-detect
exit
KEEP
)
router bgp 65001
 bgp router-id 198.18.1.1
 no bgp ebgp-requires-policy
 neighbor 198.18.1.2 remote-as 65002
 neighbor 198.18.1.2 timers connect 1
CONF
inside "$left" bird -f -c "$WORK/bird.conf" -s "$WORK/bird.ctl"
within 60 is_established
within 120 has_routes
before=$(cat "$WORK/session")

cat >"$WORK/flow.py" <<'PYTHON'
import os, socket, sys, time
mode, work, rate = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if mode == "send":
    sent, due = 0, time.monotonic()
    while not os.path.exists(f"{work}/stop"):
        s.sendto(sent.to_bytes(8, "big"), ("20.0.1.1", 5000))
        sent += 1
        due += 1 / rate
        time.sleep(max(0, due - time.monotonic()))
    sys.exit()
s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
s.bind(("20.0.1.1", 5000))
s.settimeout(1)
numbers = []
while not (numbers and os.path.exists(f"{work}/stopped")):
    try:
        numbers.append(int.from_bytes(s.recv(100), "big"))
        open(f"{work}/arrives", "w").close()
    except TimeoutError:
        pass
missing = numbers[-1] - numbers[0] + 1 - len(set(numbers))
longest = max(after - before for before, after in zip(numbers, numbers[1:])) - 1
print(f"{missing / rate:.2f} s ({missing} packets of {numbers[-1] - numbers[0] + 1}, {longest} of them in a row)")
PYTHON
inside "$left" python3 "$WORK/flow.py" receive "$WORK" "$RATE_PPS"
receiver=$started
inside "$right" python3 "$WORK/flow.py" send "$WORK" "$RATE_PPS"
sender=$started
within 10 [ -e "$WORK/arrives" ]
sleep 2

kill -TERM "$process"
wait "$process" || fail "the forwarder ended with an error"
process=
if [ "$TAP_PERSIST" = yes ]; then
  ip -n "$daemons" link show dev tap0 >"$WORK/said" || fail "tap0 has not stayed"
  says "$WORK/said" 'NO-CARRIER'
fi
start_forwarder
within 120 is_established
within 120 has_routes
rm "$WORK/arrives"
within 60 [ -e "$WORK/arrives" ]
sleep 2
touch "$WORK/stop"
wait "$sender" || fail "the sender"
touch "$WORK/stopped"
wait "$receiver" || fail "the receiver"
note "restart: nothing was forwarded for $(grep -o '[0-9.]* s (.*' "$WORK/daemons" | tail -n 1)"
is_established || fail "no session after the restart"
[ "$TAP_PERSIST" = yes ] || { note "restart: the session came up and went down (times): $before, then $(cat "$WORK/session")" && exit 0; }
ip -n "$daemons" -o address show dev tap0 >"$WORK/said"
says "$WORK/said" ' 198\.18\.1\.1/24 '
says "$WORK/said" ' 198\.51\.100\.1/24 '
! grep -q ' 198\.18\.7\.1/' "$WORK/said" || fail "tap0 still has an address that is configured no longer"
if [ "$LINK_DETECT" = yes ]; then note "restart: the session came up and went down (times): $before, then $(cat "$WORK/session")"; else
  [ "$(cat "$WORK/session")" = "$before" ] || fail "the session came up and went down (times): $before, then $(cat "$WORK/session")"
  routes=$(ip -n "$daemons" route show proto bgp | wc -l)
  [ "$routes" = "$ROUTES" ] || fail "the kernel has $routes routes of bgpd"
fi

kill -TERM "$process"
wait "$process" || fail "the forwarder ended with an error"
TAP_PERSIST=no start_forwarder
stop
! ip -n "$daemons" link show dev tap0 >/dev/null 2>&1 || fail "tap0 is still there"
