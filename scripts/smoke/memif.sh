#!/usr/bin/env bash
# Two forwarders joined by net_memif. The peer is killed and restarted: packets to it are dropped meanwhile, each counted once, and pass again.
#
# When the peer ends, the driver's thread unmaps the rings even while the lcore reads them (DPDK 22.11: memif_disconnect takes no lock of the
# data path). If the kernel's log names the library, the script runs again, at most three times.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

[ -e "$(pkg-config --variable=libdir libdpdk)/librte_net_memif.so" ] || skip "this DPDK has no net_memif"

peer=''
cleanup() {
  local code=$1 crashed=
  if [ "$code" != 0 ] && dmesg 2>/dev/null | grep -q "\[${process:-none}\]: segfault.*librte_net_memif"; then crashed=1; fi
  for one in $process $peer; do kill -9 "$one" 2>/dev/null; done
  wait
  if [ -n "$crashed" ] && [ "${MEMIF_TRY:-1}" -lt 3 ]; then
    printf 'memif: the driver has unmapped its rings under the lcore; once more\n' >&2
    rm -rf "$WORK"
    MEMIF_TRY=$((${MEMIF_TRY:-1} + 1)) exec bash "$TOP/scripts/smoke/memif.sh"
  fi
}
printf '0.0.0.0/0 2\n::/0 2\n' >"$WORK/routes"

forwarder() {
  local name=$1 lcore=$2 vdev vdevs=()
  shift 2
  for vdev in "$@"; do vdevs+=(--vdev "$vdev"); done
  exec "$APP" run --fib "$WORK/routes" --config "(0,0,$lcore),(1,0,$lcore)" --ctl "$WORK/$name.ctl" --json "$WORK/$name.json" -- \
    --no-huge -m 128 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-$name-$$" -l "$lcore" "${vdevs[@]}" >"$WORK/$name.out" 2>"$WORK/$name.err"
}
memif=socket=$WORK/socket,socket-abstract=no
start_peer() {
  forwarder peer "$(($(nproc) - 1))" "net_memif0,role=client,$memif" net_null1 &
  peer=$!
}
asked() { "$APP" ctl --json --socket "$WORK/$1.ctl" "${@:2}" >"$WORK/said" 2>/dev/null; }
dropped() { asked first show drops && json "$WORK/said" no_neighbour; }
downs() { grep -c '(net_memif1): link down' "$WORK/first.err" || true; }
drops_more() { [ "$(dropped || echo 0)" -gt "$1" ]; }
has_gone() { [ "$(downs)" -gt "$1" ]; }
passes() { asked peer show stats && [ "$(json "$WORK/said" packets rx)" -gt 10000 ]; }

forwarder first 0 "net_pcap0,rx_pcap=pcap/mix.pcap,tx_pcap=/dev/null,infinite_rx=1" "net_memif1,role=server,$memif" &
process=$!
within 60 drops_more 0
start_peer
within 30 passes
for _ in 1 2; do
  went=$(downs)
  kill -9 "$peer"
  wait "$peer" 2>/dev/null || true
  within 10 has_gone "$went"
  within 10 drops_more "$(dropped)"
  start_peer
  within 30 passes
  before=$(dropped)
  sleep 0.5
  [ "$(dropped)" = "$before" ] || fail "packets are dropped though the link is up"
done

for one in peer process; do
  kill -INT "${!one}"
  code=0
  wait "${!one}" || code=$?
  printf -v "$one" ''
  [ "$code" = 0 ] || fail "exit code $code after Ctrl-C"
done
python3 - "$WORK/first.json" <<'PYTHON' || fail "packets are not counted once"
import json, sys
packets = json.load(open(sys.argv[1]))["packets"]
sys.exit(packets["rx"] + packets["originated"] != packets["tx"] + packets["punted"] + sum(packets["drops"].values()) + packets["held"])
PYTHON
