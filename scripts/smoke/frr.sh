#!/usr/bin/env bash
# `fwd-app run --fpm`: bird2 announces 240,000 routes by eBGP to FRR's bgpd, whose zebra passes them on; the forwarder's table must be
# zebra's, also after zebra was killed and has come back. ROUTES_V4 and ROUTES_V6 change how many.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
[ -e "$(pkg-config --variable=libdir libdpdk)/librte_net_af_packet.so" ] || skip "this DPDK has no net_af_packet"
(need_all frr bird2 iproute2) || skip "FRR and bird2 cannot be installed"
has vtysh && [ -x /usr/lib/frr/zebra ] && has bird || skip "no FRR or no bird2"

HOLD_S=40
ROUTES_V4=${ROUTES_V4:-200000}
ROUTES_V6=${ROUTES_V6:-40000}
router=smoke-frr-$$ peer=smoke-bird-$$ processes=()
cleanup() {
  local process
  for process in "${processes[@]}"; do kill -9 "$process" 2>/dev/null && wait "$process" 2>/dev/null || true; done
  for space in "$router" "$peer"; do ip netns del "$space" 2>/dev/null || true; done
  rm -rf "$WORK"
  return 0
}
trap cleanup EXIT
for space in "$router" "$peer"; do ip netns add "$space" 2>/dev/null || skip "network namespaces are not allowed here"; done

# bgp0 carries the BGP session, v0 is the forwarder's port, behind which the gateways are.
for link in bgp0 v0; do
  ip -n "$router" link add "$link" type veth peer name "$link" netns "$peer" || skip "no veth in this kernel"
  for space in "$router" "$peer"; do
    ip -n "$space" link set "$link" addrgenmode none
    ip -n "$space" link set "$link" up
  done
done
for space in "$router" "$peer"; do ip -n "$space" link set lo up; done
ip -n "$router" address add 198.51.100.1/30 dev bgp0
ip -n "$peer" address add 198.51.100.2/30 dev bgp0
ip -n "$router" address add 192.0.2.1/24 dev v0
ip -n "$router" address add 2001:db8:2::1/64 dev v0 nodad
ip -n "$peer" address add 192.0.2.200/24 dev v0
ip -n "$peer" address add 2001:db8:2::200/64 dev v0 nodad

chmod 755 "$WORK"
mkdir "$WORK/frr"
chown frr:frr "$WORK/frr"
printf 'fpm address 127.0.0.1 port 2620\n' >"$WORK/frr/zebra.conf"
cat >"$WORK/frr/staticd.conf" <<'CONF'
ip route 10.3.0.0/16 blackhole
ip route 10.5.0.0/16 192.0.2.7
ipv6 route 2001:db8:ffff::/48 blackhole
CONF
cat >"$WORK/frr/bgpd.conf" <<'CONF'
router bgp 65001
 bgp router-id 198.51.100.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor 198.51.100.2 remote-as 65002
 neighbor 198.51.100.2 port 1790
 neighbor 198.51.100.2 ebgp-multihop
 neighbor 198.51.100.2 timers connect 1
 address-family ipv4 unicast
  neighbor 198.51.100.2 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor 198.51.100.2 activate
 exit-address-family
CONF
python3 - "$ROUTES_V4" "$ROUTES_V6" >"$WORK/bird.conf" <<'PYTHON'
import sys
v4, v6 = int(sys.argv[1]), int(sys.argv[2])
channel = "{ import none; export filter { bgp_next_hop = gw; accept; }; };"
print(f"""log stderr {{ fatal }}; router id 198.51.100.2;
protocol device {{}}
protocol bgp {{ local 198.51.100.2 port 1790 as 65002; neighbor 198.51.100.1 as 65001; multihop; passive yes; strict bind;
  ipv4 {channel} ipv6 {channel} }}
protocol static {{ ipv4;""")
for n in range(v4):
    print(f"route {20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24 via 192.0.2.{2 + n % 5};")
print("}\nprotocol static { ipv6;")
for n in range(v6):
    print(f"route 2001:{n >> 8 | 0x1000:x}:{n & 255:x}::/48 via 2001:db8:2::{2 + n % 5};")
print("}")
PYTHON
chmod 644 "$WORK"/frr/*.conf "$WORK/bird.conf"

# inside SPACE COMMAND.. : starts a daemon, whose process is then $started.
inside() {
  local space=$1
  shift
  ip netns exec "$space" "$@" >>"$WORK/daemons" 2>&1 &
  started=$!
  processes+=("$started")
}
frr() {
  local name=$1
  shift
  inside "$router" "/usr/lib/frr/$name" -u frr -g frr -z "$WORK/frr/z" --vty_socket "$WORK/frr" -A 127.0.0.1 -P 0 \
    -f "$WORK/frr/$name.conf" -i "$WORK/frr/$name.pid" "$@"
}
ctl() { "$APP" ctl --json --timeout 30 --socket "$WORK/ctl" "$@"; }
fpm() {
  ctl show feeds | python3 -c 'import json, sys
print(next(feed for feed in json.load(sys.stdin) if feed["feed"] == "fpm")[sys.argv[1]])' "$1"
}
memory_mb() { awk '/^'"$1"':/ { print int($2 / 1024) }' "/proc/$forwarder/status"; }

printf '# no routes of its own\n' >"$WORK/routes"
ip netns exec "$router" "$APP" run --fib "$WORK/routes" --fpm 127.0.0.1:2620 --fpm-hold "$HOLD_S" --ctl "$WORK/ctl" --config '(0,0,0)' \
  --json "$WORK/report.json" -- --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-frr-$$" -l 0 \
  --vdev net_af_packet0,iface=v0 >"$WORK/out" 2>"$WORK/err" &
forwarder=$!
processes+=("$forwarder")
for _ in {1..100}; do ctl show config >/dev/null 2>&1 && break; sleep 0.1; done
ctl show config >/dev/null || { tail -n 20 "$WORK/err" >&2 && fail "no forwarder answers"; }
empty_mb=$(memory_mb VmRSS)

frr zebra -M dplane_fpm_nl
zebra=$started
sleep 1
frr staticd
frr bgpd -p 1790 -l 198.51.100.1
sleep 2
inside "$peer" bird -f -c "$WORK/bird.conf" -s "$WORK/bird.ctl"

# loaded : waits until the feed has all of bird's routes, and prints how long that took.
loaded() {
  python3 - "$WORK/ctl" "$APP" "$((ROUTES_V4 + ROUTES_V6))" <<'PYTHON'
import json, subprocess, sys, time
socket, app, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
first = None
end = time.monotonic() + 180
while time.monotonic() < end:
    text = subprocess.run([app, "ctl", "--json", "--timeout", "30", "--socket", socket, "show", "feeds"], capture_output=True, check=True).stdout
    feed = next(feed for feed in json.loads(text) if feed["feed"] == "fpm")
    fresh = feed["routes"] - feed["stale"]
    if first is None and fresh > 100:
        first = time.monotonic()
    if fresh >= wanted:
        print(f"{time.monotonic() - first:.1f} s")
        sys.exit(0)
    time.sleep(0.05)
sys.exit(f"only {fresh} of {wanted} routes came")
PYTHON
}

# equal WHAT : waits until the forwarder's table is zebra's.
equal() {
  python3 - "$router" "$WORK" "$APP" <<'PYTHON' || fail "$1: the tables differ"
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
        command = ["ip", "netns", "exec", space, "vtysh", "--vty_socket", f"{work}/frr", "-c", f"show {family} route json"]
        for prefix, entries in json.loads(subprocess.run(command, capture_output=True, check=True).stdout).items():
            best = next((entry for entry in entries if entry.get("selected")), None)
            if best is None:
                continue
            for hop in best["nexthops"]:
                if not hop.get("fib"):
                    continue
                if hop.get("blackhole") or hop.get("unreachable"):
                    table[prefix] = "blackhole"
                elif hop.get("interfaceName") == "v0":
                    gateway = f"via {ipaddress.ip_address(hop['ip'])} " if "ip" in hop else ""
                    table[prefix] = f"{gateway}dev 0"
                break
    return table

def differences():
    wanted = zebra()
    fib = ctl(["show fib"])[0]
    v6 = sum(":" in prefix for prefix in wanted)
    if (fib["routes_v4"], fib["routes_v6"]) != (len(wanted) - v6, v6):
        return [f"{fib['routes_v4']} IPv4 and {fib['routes_v6']} IPv6 routes instead of {len(wanted) - v6} and {v6}"]
    sample = random.Random(1).sample(sorted(wanted), min(1000, len(wanted)))
    sample += [prefix for prefix in wanted if prefix.startswith(("10.", "192.", "2001:db8:"))]
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
  note "frr: $1: equal"
}

took=$(loaded) || { tail "$WORK/daemons" >&2 && fail "the routes did not come"; }
equal load
note "frr: $ROUTES_V4 IPv4 and $ROUTES_V6 IPv6 routes in $took; $(memory_mb VmRSS) MB resident, $empty_mb MB before"

kill -9 "$zebra"
wait "$zebra" 2>/dev/null || true
for _ in {1..50}; do [ "$(fpm state)" = stale ] && break; sleep 0.1; done
[ "$(fpm state)" = stale ] || fail "the feed is $(fpm state) without zebra"
[ "$(fpm routes)" -ge "$((ROUTES_V4 + ROUTES_V6))" ] || fail "routes went with zebra"
sed -i '/10.5.0.0/d' "$WORK/frr/staticd.conf"
ip netns exec "$router" vtysh --vty_socket "$WORK/frr" -c 'conf t' -c 'no ip route 10.5.0.0/16 192.0.2.7' >/dev/null
frr zebra -M dplane_fpm_nl
# After a restart of zebra, bgpd 8.4 does not always give it all routes again: what counts is that the tables are equal.
for _ in {1..60}; do [ "$(fpm state)" != stale ] && break; sleep 1; done
for _ in $(seq $((HOLD_S + 60))); do [ "$(fpm stale)" = 0 ] && break; sleep 1; done
equal "zebra again"
note "frr: $(fpm routes) routes after the sweep; $(memory_mb VmHWM) MB resident at most"
[ "$(ctl route get 10.5.1.1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["prefix"])')" = None ] || fail "10.5.0.0/16 was not swept"

kill -INT "$forwarder"
code=0
wait "$forwarder" || code=$?
[ "$code" = 0 ] || { tail "$WORK/err" >&2 && fail "exit code $code"; }
