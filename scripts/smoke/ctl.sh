#!/usr/bin/env bash
# Control of a running forwarder: groups of users, scripts, the default socket, telemetry, another engine, SIGHUP, rates, a link down and up.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

prefix=smoke-ctl-$$ socket=$WORK/ctl
cleanup() { [ -n "$process" ] && kill "$process" 2>/dev/null && wait "$process" 2>/dev/null; }
eal=(--no-huge -m 512 --no-pci --no-shconf --file-prefix "$prefix" -l 0)
receive=(--vdev "net_pcap0,rx_pcap=pcap/mix.pcap,tx_pcap=/dev/null,infinite_rx=1")
cp pcap/routes.txt "$WORK/routes.txt"

start() {
  "$@" >"$WORK/run.out" 2>"$WORK/run.err" &
  process=$!
  for _ in $(seq 100); do
    "$APP" ctl --socket "$socket" show config >/dev/null 2>&1 && return
    kill -0 "$process" 2>/dev/null || { tail -n 20 "$WORK/run.err" >&2 && fail "the forwarder ended"; }
    sleep 0.2
  done
  fail "the forwarder does not answer"
}
ctl() { expect 0 "$APP" ctl --socket "$socket" "$@"; }

as() {
  setpriv --reuid "$1" --regid "$1" --clear-groups timeout 60 python3 -c '
import contextlib, json, socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    # The server refuses a user before the request.
    with contextlib.suppress(BrokenPipeError):
        client.sendall(json.dumps({"line": sys.argv[2]}).encode() + b"\n")
    print(client.makefile().readline(), end="")' "$socket" "$2"
}

groups=(--ctl-group 60001 --ctl-read-group 60002)
mounts=(unshare -m)
"${mounts[@]}" true 2>/dev/null || mounts=()
start "${mounts[@]}" "$APP" run --fib "$WORK/routes.txt" --config '(0,0,0)' --ctl "$socket" "${groups[@]}" -- "${eal[@]}" "${receive[@]}" --vdev net_null1,no-rx=1
# Others may reach the socket, which checks the user.
chmod 711 "$WORK"
as 60001 'route add 240.0.0.0/8 7' | grep -q '"ok":true' || fail "a member of --ctl-group may not add a route"
as 60002 'route get 240.1.1.1' | grep -q '240.0.0.0/8' || fail "a member of --ctl-read-group may not ask"
as 60002 'route del 240.0.0.0/8' | grep -q 'may read only' || fail "a member of --ctl-read-group may delete a route"
as 60003 'show drops' | grep -q 'may not use the socket' || fail "a member of neither group may ask"
as 60001 'route del 240.0.0.0/8' | grep -q '"ok":true' || fail "a member of --ctl-group may not delete a route"
# A client cannot open a file through the forwarder: fwd-app ctl opens it as the client's user.
echo secret >"$WORK/secret"
chmod 600 "$WORK/secret"
install -m 755 "$APP" "$WORK/fwd-app" # others cannot run a program in root's home
as 60001 "capture drops $WORK/secret 1" | grep -q 'must come with the file' || fail "the forwarder opened a path of a client"
setpriv --reuid 60001 --regid 60001 --clear-groups timeout 60 "$WORK/fwd-app" ctl --socket "$socket" capture drops "$WORK/secret" 1 2>"$WORK/errors" &&
  fail "a client of another user captures to a file of root"
says "$WORK/errors" 'cannot write .*secret: Permission denied'
[ "$(cat "$WORK/secret")" = secret ] || fail "a client has changed a file of root"
install -d -o 60001 -m 700 "$WORK/theirs"
setpriv --reuid 60001 --regid 60001 --clear-groups timeout 60 "$WORK/fwd-app" ctl --socket "$socket" capture drops "$WORK/theirs/drops.pcapng" 1
for _ in $(seq 50); do
  grep -q 'theirs/drops.pcapng: 1 dropped packets' "$WORK/run.err" && break
  sleep 0.2
done
[ "$(stat -c '%u %a' "$WORK/theirs/drops.pcapng")" = '60001 600' ] || fail "a capture is not its client's"
grep -q no_route "$WORK/theirs/drops.pcapng" || fail "a capture of a member of --ctl-group"
# Idle clients of other users leave places for root, and one of them gives its place to a new client.
setpriv --reuid 60002 --regid 60002 --clear-groups timeout 60 python3 -c '
import socket, sys, time
idle = [socket.socket(socket.AF_UNIX) for _ in range(16)]
for client in idle:
    client.connect(sys.argv[1])
    time.sleep(0.05)
print("connected", flush=True)
time.sleep(60)' "$socket" >"$WORK/idle" &
idle=$!
for _ in $(seq 50); do
  grep -q connected "$WORK/idle" && break
  sleep 0.2
done
ctl show drops
sleep 1
as 60002 'show drops' | grep -q '"ok":true' || fail "no idle client gives its place to a new one"
kill "$idle"
wait "$idle" 2>/dev/null || true

# Root is served while a name service does not answer for another user: here reads of /etc/passwd block.
if [ "${#mounts[@]}" != 0 ]; then
  mkfifo "$WORK/passwd"
  nsenter -m -t "$process" mount --bind "$WORK/passwd" /etc/passwd
  as 60003 'show drops' >/dev/null 2>&1 &
  stranger=$!
  sleep 0.5
  ctl show drops
  : >"$WORK/passwd"
  wait "$stranger" || true
  nsenter -m -t "$process" umount /etc/passwd
else
  note "ctl: SKIPPED: a name service that does not answer: needs a mount namespace"
fi
printf '%s\n' '# a comment' 'show port info all' 'route add 240.0.0.0/8 7' 'set engine bloom' 'show engine' 'trace 2' >"$WORK/script"
timeout 60 "$APP" ctl --socket "$socket" <"$WORK/script" >"$WORK/answers" 2>"$WORK/errors" || fail "$(cat "$WORK/errors")"
says "$WORK/answers" 'engine +bloom'
says "$WORK/answers" 'packet 2'
printf '%s\n' 'route get 240.1.1.1' 'route del 241.0.0.0/8' 'route del 240.0.0.0/8' >"$WORK/script"
code=0
timeout 60 "$APP" ctl --socket "$socket" <"$WORK/script" >"$WORK/answers" 2>"$WORK/errors" || code=$?
[ "$code" = 1 ] || fail "exit code $code for a script with an error"
says "$WORK/errors" 'stdin:2:'
ctl --json route get 240.1.1.1
[ "$(json "$WORK/out" prefix) $(json "$WORK/out" id)" = "240.0.0.0/8 7" ] || fail "a script went on after its error"
expect 2 "$APP" ctl --socket "$socket" show nonsense
expect 3 "$APP" ctl --socket "$WORK/nobody" show drops

traced() {
  python3 -c 'import json, sys; print(*sorted({str(eval("p" + sys.argv[2])) for p in json.load(open(sys.argv[1]))}))' "$WORK/out" "$1"
}
ctl --json trace 3 reason no_route port 0
[ "$(traced "['dropped']")" = no_route ] || fail "traced: $(traced "['dropped']")"
to=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["addresses"][1])' "$WORK/out")
ctl --json trace 2 to "$to" vrf default
[ "$(traced "['addresses'][1]")" = "$to" ] || fail "traced: $(traced "['addresses'][1]"), not $to"
ctl trace 1 port 1
says "$WORK/out" 'no matching packet arrived'
ctl capture drops "$WORK/drops.pcapng" 20 to "$to" reason no_r
for _ in $(seq 50); do
  grep -q '20 dropped packets' "$WORK/run.err" && break
  sleep 0.2
done
says "$WORK/run.err" 'drops.pcapng: 20 dropped packets'
[ "$(grep -ao no_route "$WORK/drops.pcapng" | wc -l)" = 20 ] || fail "a capture with a filter"
expect 1 "$APP" ctl --socket "$socket" trace 1 port 9
expect 1 "$APP" ctl --socket "$socket" trace 1 vrf nobody
expect 2 "$APP" ctl --socket "$socket" trace 1 reason nonsense

ctl show next-hops
says "$WORK/out" 'not counted'
ctl set next-hop-counters on
sleep 0.3
ctl stop
ctl --json show next-hops
python3 - "$WORK/out" <<'PYTHON' || fail "counters by next hop"
import json, sys
shown = json.load(open(sys.argv[1]))
hops = shown["next_hops"]
assert shown["on"] and len(hops) > 50 and shown["others"]["packets"] > 0, shown
assert all(hop["packets"] > 0 and 60 * hop["packets"] <= hop["bytes"] <= 1522 * hop["packets"] for hop in hops)
assert [hop["packets"] for hop in hops] == sorted((hop["packets"] for hop in hops), reverse=True)
PYTHON
ctl vrf default show next-hops
says "$WORK/out" '^id +packets +bytes +next hop$'
ctl start
ctl set next-hop-counters off
ctl --json show next-hops
[ "$(json "$WORK/out" on)" = False ] || fail "packets are counted by next hop though it is off"

echo '241.0.0.0/8 9' >>"$WORK/routes.txt"
kill -HUP "$process"
for _ in $(seq 50); do
  ctl --json route get 241.1.1.1
  [ "$(json "$WORK/out" id)" = 9 ] && break
  sleep 0.2
done
[ "$(json "$WORK/out" id)" = 9 ] || fail "the new route is not in service"

telemetry=/var/run/dpdk/$prefix/dpdk_telemetry.v2
if [ -S "$telemetry" ]; then
  python3 - "$telemetry" >"$WORK/telemetry" <<'PYTHON'
import json, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
connection.recv(4096)
for command in "/fwd/stats", "/fwd/engine", "/fwd/routes":
    connection.send(command.encode())
    print(json.dumps(json.loads(connection.recv(1 << 20))[command]))
PYTHON
  says "$WORK/telemetry" '"mpps"'
  says "$WORK/telemetry" '"name": "bloom"'
  says "$WORK/telemetry" '"routes_v4"'
else
  note "ctl: SKIPPED: this EAL has no telemetry socket"
fi

rates() {
  ctl --json show rates
  python3 - "$WORK/out" "$1" <<'PYTHON'
import json, sys
rates = json.load(open(sys.argv[1]))
over = [f"{name}_{span}" for name in ("rx_pps", "tx_pps") for span in ("1s", "10s")]
values = [port[key] for port in rates["ports"] for key in over + ["rx_missed_1s"]]
values += [lcore[key] for lcore in rates["lcores"] for key in ("busy_1s", "busy_10s")]
assert [port["name"] for port in rates["ports"]] == ["net_pcap0", "net_null1"], rates
assert [lcore["lcore"] for lcore in rates["lcores"]] == [0] and len(rates["vrfs"]) == 1, rates
assert None not in values, rates
now = [rates["ports"][0]["rx_pps_1s"], rates["ports"][1]["tx_pps_1s"], rates["lcores"][0]["busy_1s"], rates["vrfs"][0]["rx_pps_1s"]]
assert all(now) if sys.argv[2] == "some" else not any(now), rates
PYTHON
}
rates some || fail "no rates"
ctl show rates
says "$WORK/out" 'net_pcap0 +rx'
ctl top --count 2
[ "$(grep -c '^lcore ' "$WORK/out")" = 2 ] || fail "top shows $(grep -c '^lcore ' "$WORK/out") screens, not 2"
ctl stop
sleep 2
rates none || fail "rates two seconds after the last packet"
ctl start
stop TERM
[ ! -e "$socket" ] || fail "the socket is still there"

if [ "$(id -u)" = 0 ]; then
  socket=/run/fwd-app/$prefix.sock
  start "$APP" run --fib pcap/routes.txt --config '(0,0,0)' -- "${eal[@]}" --vdev net_null0
  stop TERM
  socket=$WORK/ctl
fi

if [ "$(id -u)" = 0 ] && [ -w /dev/net/tun ] && has ip && ip netns add "$prefix" 2>/dev/null; then
  inside=(ip netns exec "$prefix")
  start "${inside[@]}" "$APP" run --fib pcap/routes.txt --config '(0,0,0),(1,0,0)' --ctl "$socket" -- "${eal[@]}" "${receive[@]}" \
    --vdev "net_tap1,iface=link0"
  count() {
    ctl --json show drops
    json "$WORK/out" no_neighbour
  }
  [ "$(count)" = 0 ] || fail "no neighbour is missing yet"
  "${inside[@]}" ip link set link0 down
  sleep 1
  says "$WORK/run.err" 'link down'
  [ "$(count)" -gt 0 ] || fail "packets leave by a link that is down"
  "${inside[@]}" ip link set link0 up
  sleep 1
  says "$WORK/run.err" 'link up'
  before=$(count)
  sleep 0.5
  [ "$(count)" = "$before" ] || fail "packets are dropped though the link is up"
  stop TERM
  ip netns del "$prefix"
else
  note "ctl: SKIPPED: a link that goes down: needs root, /dev/net/tun and network namespaces"
fi
