#!/usr/bin/env bash
# `fwd-app run` between DPDK ports that need no hardware: files in and out byte for byte, and an orderly end on Ctrl-C.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

eal() { printf '%s\n' --no-huge -m 256 --no-pci --no-shconf --no-telemetry --file-prefix "smoke-$$" -l 0; }
mapfile -t eal < <(eal)

# Port 0 receives the capture; packets sent by port N go to portN.pcap.
for capture in mix bad links; do
  vdevs=(--vdev "net_pcap0,rx_pcap=pcap/$capture.pcap,tx_pcap=$WORK/port0.pcap")
  for port in 1 2 3; do
    vdevs+=(--vdev "net_pcap$port,rx_pcap=pcap/none.pcap,tx_pcap=$WORK/port$port.pcap")
  done
  head -c 24 pcap/mix.pcap >"$WORK/none.pcap"
  vdevs=("${vdevs[@]//pcap\/none.pcap/$WORK/none.pcap}")
  expect 0 "$APP" run --fib "pcap/$(json "pcap/$capture.golden.json" routes)" --config '(0,0,0)' --duration 2 --json "$WORK/report.json" -- "${eal[@]}" "${vdevs[@]}"
  python3 scripts/smoke/golden.py --any-source "pcap/$capture.golden.json" "$WORK" "$WORK/report.json" ||
    fail "$capture.pcap: not as in $capture.golden.json"
done

for signal in INT TERM; do
  "$APP" run --fib pcap/routes.txt --config '(0,0,0)' -- "${eal[@]}" --vdev net_null0 --vdev net_null1 >"$WORK/out" 2>"$WORK/err" &
  process=$!
  sleep 3
  kill "-$signal" "$process"
  code=0
  wait "$process" || code=$?
  [ "$code" = 0 ] || { tail "$WORK/err" >&2 && fail "exit code $code after SIG$signal"; }
  says "$WORK/out" 'rx'
done

# net_tap requires as many RX queues as TX queues, so a port that only sends has an RX queue without a poll, and a message.
if [ "$(id -u)" = 0 ] && [ -w /dev/net/tun ] && unshare -n true 2>/dev/null; then
  expect 0 unshare -n "$APP" run --fib pcap/routes.txt --config '(0,0,0)' --duration 0.5 --json "$WORK/report.json" -- "${eal[@]}" \
    --vdev net_null0,no-rx=1 --vdev "net_tap1,iface=smoke$$"
  says "$WORK/err" 'port 1 .net_tap1. is not in --config.*lost'
  says "$WORK/report.json" '"receives": false'
else
  note "run: SKIPPED: a port of net_tap: needs root, /dev/net/tun and unshare"
fi

little=("${eal[@]/256/32}")
expect 1 "$APP" run --fib pcap/routes.txt --config '(0,0,0)' --mbufs 65535 --duration 0.5 -- "${little[@]}" --vdev net_null0
says "$WORK/err" 'no memory for 65535 mbufs of [0-9]+ bytes, about [0-9]+ MB: with --no-huge, EAL has the 32 MB of its -m, and -m [0-9]+ is enough'
enough=$(sed -nE 's/.* and -m ([0-9]+) is enough.*/\1/p' "$WORK/err")
expect 0 "$APP" run --fib pcap/routes.txt --config '(0,0,0)' --mbufs 65535 --duration 0.5 -- "${little[@]/#32/$enough}" --vdev net_null0

expect 3 "$APP" run --fib pcap/routes.txt --config '(7,0,0)' -- "${eal[@]}" --vdev net_null0
expect 2 "$APP" run --fib pcap/routes.txt --config '(0,0,0),(0,0,0)' -- "${eal[@]}" --vdev net_null0
expect 2 "$APP" run --fib pcap/routes.txt --config 'nonsense' -- "${eal[@]}" --vdev net_null0
