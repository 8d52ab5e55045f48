#!/usr/bin/env bash
# Two forwarders, each with FRR on its TAPs, behind a router with equal paths through both (docs/scale-out.md). One is drained, replaced by
# a new process and taken back: no packet may be lost. The other is killed: BFD moves its flows, and the loss until then is printed.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_frr.sh"
idle_sleeps

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
need_taps
need_packages frr iproute2 ethtool

up=smoke-up-$$ down=smoke-down-$$ spaces=()
cleanup() {
  local space
  end_processes
  for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null; done
}
space() {
  or_skip ip netns add "$1"
  spaces+=("$1")
  ip -n "$1" link set lo up
}
neighbour() { # AS ADDRESS
  printf ' neighbor %s remote-as %s\n neighbor %s timers connect 1\n neighbor %s bfd 3 100 100\n' "$2" "$1" "$2" "$2"
}

space "$up"
space "$down"
ip -n "$up" address add 192.0.2.1/32 dev lo
ip -n "$down" address add 203.0.113.1/32 dev lo
# arm NAME UP DOWN : a forwarder between 198.18.UP.2 on the upstream router and 198.18.DOWN.2 on the host downstream.
arm() {
  local name=$1 ports=smoke-$1-ports-$$ daemons=smoke-$1-$$ number side at link
  space "$ports"
  space "$daemons"
  for side in north:"$2" south:"$3"; do
    number=${side#*:} side=${side%:*} link=$name$number
    [ "$side" = north ] && at=$up || at=$down
    or_skip ip -n "$ports" link add "$side" type veth peer name "$link" netns "$at"
    ip netns exec "$ports" sysctl -qw "net.ipv6.conf.$side.disable_ipv6=1"
    ip netns exec "$ports" ethtool -K "$side" rx off tx off sg off tso off gso off gro off >/dev/null 2>&1
    ip netns exec "$at" ethtool -K "$link" rx off tx off sg off tso off gso off gro off >/dev/null 2>&1
    ip -n "$ports" link set "$side" up
    ip -n "$at" link set "$link" up
    ip -n "$at" address add "198.18.$number.2/24" dev "$link"
  done
  { printf 'fpm address 127.0.0.1 port 2620\nip route 203.0.113.0/24 198.18.%s.2\n' "$3"
    printf 'router bgp 65001\n bgp router-id 198.18.%s.1\n no bgp ebgp-requires-policy\n' "$2"
    neighbour 65000 "198.18.$2.2"
    printf ' address-family ipv4 unicast\n  redistribute static\n exit-address-family\n'; } >"$WORK/frr-$name"
}
arm a 1 2
arm b 3 4
ip netns exec "$up" sysctl -qw net.ipv4.fib_multipath_hash_policy=1
{ printf 'router bgp 65000\n bgp router-id 192.0.2.1\n no bgp ebgp-requires-policy\n'
  neighbour 65001 198.18.1.1
  neighbour 65001 198.18.3.1
  printf ' address-family ipv4 unicast\n  network 192.0.2.1/32\n  maximum-paths 16\n exit-address-family\n'; } >"$WORK/frr-up"

hook() { # NAME
  cat <<HOOK
#!/bin/sh
case \$1 in drain) no= ;; *) no='no ' ;; esac
exec vtysh --vty_socket /run/frr/smoke-$1-$$ -c 'configure terminal' -c 'router bgp 65001' -c "\${no}bgp graceful-shutdown"
HOOK
}
ctl() { # NAME WORDS..
  local name=$1
  shift
  "$APP" ctl --json --socket "$WORK/ctl-$name" "$@"
}
# forwarder NAME UP DOWN LCORE : starts it; $started is its process id. Both use one CPU, which leaves the other for the rest.
forwarder() {
  hook "$1" >"$WORK/hook-$1"
  chmod 755 "$WORK/hook-$1"
  inside "smoke-$1-ports-$$" "$APP" run --ctl "$WORK/ctl-$1" --config '(0,0,'"$4"'),(1,0,'"$4"')' --drain-hook "$WORK/hook-$1" \
    --address "0=198.18.$2.1/24" --address "1=198.18.$3.1/24" --tap 0=tap0 --tap 1=tap1 --tap-netns "smoke-$1-$$" \
    --fpm 127.0.0.1:2620 --fpm-user frr --fib "$WORK/routes" --json "$WORK/report-$1.json" -- --no-huge -m 256 --no-pci --no-shconf --no-telemetry \
    --file-prefix "smoke-scale-$1-$$" -l "$4" --vdev net_af_packet0,iface=north --vdev net_af_packet1,iface=south
}
within() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || { tail -n 20 "$WORK/daemons" >&2 && fail "not in time: $what"; }
    sleep 0.2
  done
}
knows() { [ "$(ctl "$1" route get 203.0.113.1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["prefix"])')" = 203.0.113.0/24 ]; }
paths() { [ "$(ip -n "$up" route show 203.0.113.0/24 | grep -o 'via ' | wc -l)" = "$1" ]; }

printf '# no routes of its own\n' >"$WORK/routes"
forwarder a 1 2 0
first=$started
forwarder b 3 4 0
second=$started
frr "$up" bfdd bgpd <"$WORK/frr-up"
for name in a b; do frr "smoke-$name-$$" staticd bfdd bgpd <"$WORK/frr-$name"; done
for name in a b; do within 60 "routes of forwarder $name" knows "$name"; done
within 60 "two paths" paths 2
bfd_is_up() { [ "$(vty "$up" 'show bfd peers json' | grep -o '"status":"up"' | wc -l)" = 2 ]; }
within 30 "BFD sessions" bfd_is_up

cat >"$WORK/flow.py" <<'PYTHON'
import os, socket, sys, time
role, folder = sys.argv[1:]
end = os.path.join(folder, "end")
if role == "receive":
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.bind(("203.0.113.1", 9))
    sock.settimeout(0.5)
    last = None
    with open(os.path.join(folder, "received"), "w") as out:
        while not (os.path.exists(end) and last is None):
            try:
                last = sock.recv(64)
            except TimeoutError:
                last = None
            else:
                print(int.from_bytes(last[:8], "big"), file=out)
else:
    socks = []
    for port in range(64):
        socks.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        socks[-1].bind(("192.0.2.1", 10000 + port))
    count, start = 0, time.monotonic()
    while not os.path.exists(end):
        socks[count % 64].sendto(count.to_bytes(8, "big") + bytes(24), ("203.0.113.1", 9))
        count += 1
        if count % 10 == 0:
            with open(os.path.join(folder, "sending.new"), "w") as out:
                print(count, file=out)
            os.replace(os.path.join(folder, "sending.new"), os.path.join(folder, "sending"))
            time.sleep(max(0, start + count / 500 - time.monotonic()))
    with open(os.path.join(folder, "sent"), "w") as out:
        print(count, file=out)
PYTHON
flow() {
  rm -f "$WORK/end"
  inside "$down" python3 "$WORK/flow.py" receive "$WORK"
  receiver=$started
  sleep 0.5
  inside "$up" python3 "$WORK/flow.py" send "$WORK"
  sender=$started
}
settle() {
  : >"$WORK/end"
  wait "$sender" || fail "the sender ended by itself"
  wait "$receiver" || fail "the receiver ended by itself"
  read -r lost sent twice < <(python3 - "$WORK" <<'PYTHON'
import sys
sent = int(open(f"{sys.argv[1]}/sent").read())
received = [int(line) for line in open(f"{sys.argv[1]}/received")]
print(sent - len(set(received)), sent, len(received) - len(set(received)))
PYTHON
  )
}
forwarded() { ctl "$1" show stats | python3 -c 'import json, sys; print(json.load(sys.stdin)["packets"]["tx"])'; }

flow
has_part() { [ "$(forwarded "$1")" -gt 200 ]; }
for name in a b; do within 60 "flows through forwarder $name" has_part "$name"; done
ctl a stop --drain >/dev/null || fail "the drain"
paths 1 || fail "a drained forwarder is still a path"
kill -TERM "$first"
wait "$first" || fail "forwarder a ended with $?"
forwarder a 1 2 0
first=$started
within 60 "routes after the upgrade" knows a
"$WORK/hook-a" resume
within 60 "two paths after the upgrade" paths 2
sleep 2
settle
[ "$lost $twice" = "0 0" ] || fail "of $sent packets $lost were lost and $twice came twice while a forwarder was upgraded"
note "scale_out: $sent packets, none lost while a forwarder was drained, replaced and taken back"

within 30 "BFD sessions" bfd_is_up
flow
sleep 2
kill -9 "$second"
wait "$second" 2>/dev/null || true
within 30 "one path" paths 1
sleep 1
before=$(cat "$WORK/sending")
sleep 2
settle
after=$(python3 -c 'import sys; print(sum(int(line) >= int(sys.argv[2]) for line in open(sys.argv[1])))' "$WORK/received" "$before")
[ "$after" -ge "$((sent - before))" ] || fail "of $((sent - before)) packets after the change $after came"
note "scale_out: $lost of $sent packets at 500 a second were lost when a forwarder was killed (BFD: 3 times 100 ms)"
