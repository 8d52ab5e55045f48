#!/usr/bin/env bash
# `fwd-app run --tap --fpm`: bird2 announces 72,000 routes by eBGP to FRR's bgpd *through a port of the forwarder*, and zebra sends them over
# FPM. The forwarder's table must equal zebra's after the load, after a change of a third of the routes, and after zebra was killed and has
# restarted. No packet over unchanged routes may be lost meanwhile. ROUTES_V4 and ROUTES_V6 change the numbers.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_hosts.sh"
. "$(dirname "${BASH_SOURCE[0]}")/_frr.sh"
idle_sleeps

need_taps
need_packages frr bird2

HOLD_S=20
ROUTES_V4=${ROUTES_V4:-60000}
ROUTES_V6=${ROUTES_V6:-12000}
# bird is on the left host, behind port 0. The flows come from the right host, behind port 1. FRR is in the namespace of the TAPs.
peer=$left daemons=smoke-frr-$$
cleanup() {
  end_processes
  ip netns del "$daemons" 2>/dev/null
  remove_hosts
}
two_hosts
ip netns add "$daemons"

# bird is 198.18.1.200; the gateways of its routes are 198.18.1.2 to .6, the destinations addresses on its loopback interface.
ip -n "$daemons" link set lo up
for last in 3 4 5 6 7 200; do
  ip -n "$peer" address add "198.18.1.$last/24" dev eth0
  ip -n "$peer" address add "fd00:1::$last/64" dev eth0 nodad
done
FLOWS=(20.0.1.1 10.5.0.1 2001:1000:1::1)
for flow in "${FLOWS[@]}"; do ip -n "$peer" address add "$flow" dev lo; done

cat >"$WORK/frr" <<'CONF'
fpm address 127.0.0.1 port 2620
ip route 10.3.0.0/16 blackhole
ip route 10.5.0.0/16 198.18.1.7
ip route 10.6.0.0/16 198.18.1.7
ipv6 route 2001:db8:ffff::/48 blackhole
router bgp 65001
 bgp router-id 198.18.1.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor 198.18.1.200 remote-as 65002
 neighbor 198.18.1.200 timers connect 1
 neighbor fd00:1::200 remote-as 65002
 neighbor fd00:1::200 timers connect 1
 address-family ipv4 unicast
  neighbor 198.18.1.200 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor fd00:1::200 activate
 exit-address-family
CONF
bird_conf() {
  python3 - "$ROUTES_V4" "$ROUTES_V6" "$1" <<'PYTHON'
import sys
v4, v6, changed = map(int, sys.argv[1:])
def gateway(n):
    return 2 + (n + (changed if n % 3 == 0 else 0)) % 5
def protocol(local, neighbour, family):
    print(f"protocol bgp {{ local {local} as 65002; neighbor {neighbour} as 65001; direct; passive yes; strict bind;")
    print(f"  {family} {{ import none; export filter {{ bgp_next_hop = gw; accept; }}; }}; }}")
print("log stderr { fatal }; router id 198.18.1.200;\nprotocol device {}")
protocol("198.18.1.200", "198.18.1.1", "ipv4")
protocol("fd00:1::200", "fd00:1::1", "ipv6")
print("protocol static { ipv4;")
for n in range(v4):
    print(f"route {20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24 via 198.18.1.{gateway(n)};")
print("}\nprotocol static { ipv6;")
for n in range(v6):
    print(f"route 2001:{n >> 8 | 0x1000:x}:{n & 255:x}::/48 via fd00:1::{gateway(n)};")
print("}")
PYTHON
}
bird_conf 0 >"$WORK/bird.conf"
bird_conf 1 >"$WORK/changed.conf"

ctl() { "$APP" ctl --json --timeout 30 --socket "$WORK/ctl" "$@"; }
fpm() {
  ctl show feeds | python3 -c 'import json, sys
print(next(feed for feed in json.load(sys.stdin) if feed["feed"] == "fpm")[sys.argv[1]])' "$1"
}
memory_mb() { awk '/^'"$1"':/ { print int($2 / 1024) }' "/proc/$forwarder/status"; }

printf '# no routes of its own\n' >"$WORK/routes"
ip netns exec "$router" "$APP" run --fib "$WORK/routes" --fpm 127.0.0.1:2620 --fpm-user frr --fpm-hold "$HOLD_S" --ctl "$WORK/ctl" \
  --config '(0,0,0),(1,0,0)' --tap 0=tap0 --tap 1=tap1 --tap-netns "$daemons" --address 0=198.18.1.1/24 --address 0=fd00:1::1/64 \
  --address 1=198.18.2.1/24 --address 1=fd00:2::1/64 --json "$WORK/report.json" -- \
  --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-bgp-$$" -l 0 \
  --vdev net_af_packet0,iface=link1 --vdev net_af_packet1,iface=link2 >"$WORK/out" 2>"$WORK/err" &
forwarder=$!
processes+=("$forwarder")
for _ in {1..100}; do ctl show config >/dev/null 2>&1 && break; sleep 0.1; done
ctl show config >/dev/null || { tail -n 20 "$WORK/err" >&2 && fail "no forwarder answers"; }
empty_mb=$(memory_mb VmRSS)

frr "$daemons" staticd bgpd <"$WORK/frr"
zebra=$(cat "/run/frr/$daemons/zebra.pid")
inside "$peer" bird -f -c "$WORK/bird.conf" -s "$WORK/bird.ctl"

loaded() {
  python3 - "$WORK" "$APP" "$((ROUTES_V4 + ROUTES_V6))" "$daemons" <<'PYTHON'
import json, subprocess, sys, time
work, app, wanted, space = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

def answer(*command):
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

def forwarder():
    feeds = answer(app, "ctl", "--json", "--timeout", "30", "--socket", f"{work}/ctl", "show", "feeds")
    return next(feed["routes"] - feed["stale"] for feed in feeds if feed["feed"] == "fpm")

def zebra():
    vtysh = ["vtysh", "--vty_socket", f"/run/frr/{space}", "-c"]
    return sum(answer(*vtysh, f"show {family} route summary json")["routesTotalFib"] for family in ("ip", "ipv6"))

first, took, routes = None, {}, {}
end = time.monotonic() + 180
while time.monotonic() < end and len(took) < 2:
    for who in (forwarder, zebra):
        if who not in took:
            routes[who] = who()
            if first is None and routes[who] > 100:
                first = time.monotonic()
            if routes[who] >= wanted:
                took[who] = time.monotonic() - first
    time.sleep(0.2)
if forwarder not in took:
    sys.exit(f"only {routes[forwarder]} of {wanted} routes came")
own = f"{took[zebra]:.1f} s" if zebra in took else "more"
print(f"{took[forwarder]:.1f} s, in zebra itself in {own}")
PYTHON
}

established() {
  local summary
  for _ in {1..60}; do
    summary=$(vty "$daemons" 'show bgp summary json' 2>/dev/null || true)
    [ "$(grep -c '"state":"Established"' <<<"$summary")" = 2 ] && return 0
    sleep 0.5
  done
  fail "no BGP session through the forwarder"
}

equal() {
  python3 - "$daemons" "$WORK" "$APP" <<'PYTHON' || fail "$1: the tables differ"
import ipaddress, json, random, subprocess, sys, time
space, work, app = sys.argv[1:]

def ctl(lines):
    text = "\n".join(lines) + "\n"
    command = [app, "ctl", "--json", "--timeout", "30", "--socket", f"{work}/ctl"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]

def zebra():
    table = {}
    for family in "ip", "ipv6":
        command = ["vtysh", "--vty_socket", f"/run/frr/{space}", "-c", f"show {family} route json"]
        for prefix, entries in json.loads(subprocess.run(command, capture_output=True, check=True).stdout).items():
            best = next((entry for entry in entries if entry.get("selected")), None)
            if best is None:
                continue
            if best["protocol"] == "local":
                table[prefix] = "local"
                continue
            for hop in best["nexthops"]:
                if not hop.get("fib"):
                    continue
                if hop.get("unreachable"):
                    table[prefix] = "blackhole" if hop.get("blackhole") else "unreachable"
                elif hop.get("interfaceName") in ("tap0", "tap1"):
                    gateway = f"via {ipaddress.ip_address(hop['ip'])} " if "ip" in hop else ""
                    table[prefix] = f"{gateway}dev {hop['interfaceName'][3:]}"
                break
    return table

def differences():
    wanted = zebra()
    listed = {route["prefix"]: route["next_hop"] for route in ctl(["route list"])}
    # Local routes that only FRR 10 lists are the forwarder's addresses and the links' broadcast addresses.
    listed = {prefix: hop for prefix, hop in listed.items() if hop != "local" or prefix in wanted}
    for table in wanted, listed:
        table.pop("fe80::/64", None)
    found = [
        f"{prefix}: {wanted.get(prefix)}, but {listed.get(prefix)}"
        for prefix in wanted.keys() | listed.keys()
        if wanted.get(prefix) != listed.get(prefix)
    ]
    if found:
        return found
    sample = random.Random(1).sample(sorted(wanted), min(1000, len(wanted)))
    sample += [prefix for prefix in wanted if prefix.startswith(("10.", "198.", "fd00:", "2001:db8:"))]
    answers = ctl([f"route get {prefix.split('/')[0]}" for prefix in sample])
    return [
        f"{prefix}: {wanted[prefix]}, but {answer}"
        for prefix, answer in zip(sample, answers)
        if (answer["prefix"], answer["next_hop"]) != (prefix, wanted[prefix]) or not answer["engine_id"]
    ]

end = time.monotonic() + 60
while found := differences():
    if time.monotonic() > end:
        sys.exit("\n".join(found[:10]))
    time.sleep(1)
PYTHON
  note "bgp: $1: equal"
}

established
took=$(loaded) || { tail "$WORK/daemons" >&2 && fail "the routes did not come"; }
equal load
note "bgp: $ROUTES_V4 IPv4 and $ROUTES_V6 IPv6 routes in $took; $(memory_mb VmRSS) MB resident, $empty_mb MB before"

cat >"$WORK/flow.py" <<'PYTHON'
import os, socket, sys, time
mode, work, addresses = sys.argv[1], sys.argv[2], sys.argv[3:]
sockets = {}
for address in addresses:
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    if mode == "receive":
        s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        s.bind((address, 5000))
        s.setblocking(False)
    sockets[address] = s
counts = dict.fromkeys(addresses, 0)
open(f"{work}/{mode}s", "w").close()
due, last = time.monotonic(), None
while True:
    if mode == "send":
        if os.path.exists(f"{work}/stop"):
            break
        for address, s in sockets.items():
            s.sendto(b"flow", (address, 5000))
            counts[address] += 1
        due += len(addresses) / 500
        time.sleep(max(0, due - time.monotonic()))
        continue
    for address, s in sockets.items():
        try:
            while s.recv(100):
                counts[address] += 1
        except BlockingIOError:
            pass
    if os.path.exists(f"{work}/sent") and last is None:
        last = time.monotonic() + 2
    if last is not None and time.monotonic() > last:
        break
    time.sleep(0.02)
with open(f"{work}/{'sent' if mode == 'send' else 'received'}.part", "w") as out:
    for address, count in counts.items():
        print(address, count, file=out)
os.rename(out.name, out.name.removesuffix(".part"))
PYTHON
start_flows() {
  rm -f "$WORK"/{sends,receives,sent,received,stop}
  inside "$peer" python3 "$WORK/flow.py" receive "$WORK" "${FLOWS[@]}"
  receiver=$started
  for _ in {1..50}; do [ -e "$WORK/receives" ] && break; sleep 0.1; done
  inside "$right" python3 "$WORK/flow.py" send "$WORK" "${FLOWS[@]}"
}
end_flows() {
  local what=$1 flow
  shift
  touch "$WORK/stop"
  wait "$receiver" || fail "the receiver"
  for flow in "$@"; do
    grep -qxF "$(grep "^$flow " "$WORK/sent")" "$WORK/received" ||
      fail "$what: of the packets to $(grep "^$flow " "$WORK/sent") only $(grep "^$flow " "$WORK/received") arrived"
  done
  note "bgp: $what: all packets to $* have arrived: $(grep -c . "$WORK/received") flows of $(awk 'NR == 1 { print $2 }' "$WORK/sent")"
}

start_flows
cp "$WORK/changed.conf" "$WORK/bird.conf"
birdc -s "$WORK/bird.ctl" configure >"$WORK/birdc" 2>&1 || fail "bird does not take its new configuration"
before=$SECONDS
changed() { ctl route get 20.0.0.1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["next_hop"])'; }
for _ in {1..120}; do [ "$(changed)" = 'via 198.18.1.3 dev 0' ] && break; sleep 0.25; done
sleep 2
equal "a third changed"
note "bgp: $(((ROUTES_V4 + ROUTES_V6) / 3)) changes in $((SECONDS - before)) s at most"

end_flows "a third changed" "${FLOWS[@]}"

start_flows
kill -9 "$zebra"
wait "$zebra" 2>/dev/null || true
for _ in {1..50}; do [ "$(fpm state)" = stale ] && break; sleep 0.1; done
[ "$(fpm state)" = stale ] || fail "the feed is $(fpm state) without zebra"
[ "$(fpm routes)" -ge "$((ROUTES_V4 + ROUTES_V6))" ] || fail "routes went with zebra"
[ "$(ctl route list source fpm stale | wc -l)" -ge "$((ROUTES_V4 + ROUTES_V6))" ] || fail "routes of a zebra that has gone are not stale"
vty "$daemons" 'conf t' 'no ip route 10.6.0.0/16 198.18.1.7' >/dev/null
frr_again "$daemons" zebra
# bgpd 8.4 does not always announce every route again to a restarted zebra, so only equality of the tables counts.
for _ in {1..60}; do [ "$(fpm state)" != stale ] && break; sleep 1; done
for _ in $(seq $((HOLD_S + 60))); do [ "$(fpm stale)" = 0 ] && break; sleep 1; done
equal "zebra again"
has_10_6() { [ "$(ctl route get 10.6.1.1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["prefix"])')" != None ]; }
for _ in $(seq $((KEEP_S + 20))); do has_10_6 || break; sleep 1; done
! has_10_6 || fail "10.6.0.0/16 was not swept"
equal "zebra's own sweep"
note "bgp: $(fpm routes) routes after the sweep; $(memory_mb VmHWM) MB resident at most"

# zebra may lack routes of bgpd now. Flows over its other routes must have lost nothing.
stayed=()
for flow in "${FLOWS[@]}"; do
  [ "$(ctl route get "$flow" | python3 -c 'import json, sys; print(json.load(sys.stdin)["prefix"])')" = None ] || stayed+=("$flow")
done
[[ " ${stayed[*]} " == *" 10.5.0.1 "* ]] || fail "staticd's route is gone"
end_flows "zebra again" "${stayed[@]}"

kill -INT "$forwarder"
code=0
wait "$forwarder" || code=$?
[ "$code" = 0 ] || { tail "$WORK/err" >&2 && fail "exit code $code"; }
