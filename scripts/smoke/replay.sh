#!/usr/bin/env bash
# `fwd-app replay`: the output for the bundled captures matches the golden files byte for byte, in both topologies and every format.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

fib=pcap/routes.txt
replay() { expect 0 "$APP" replay "$1" --fib "$fib" --no-huge --ports 4 --json "$WORK/report.json" "${@:2}"; }

for topology in run-to-completion pipeline; do
  for capture in mix bad links; do
    fib=pcap/$(json "pcap/$capture.golden.json" routes)
    rm -rf "$WORK/sent"
    mkdir "$WORK/sent"
    replay "pcap/$capture.pcap" --topology "$topology" --verify --out "$WORK/sent"
    python3 scripts/smoke/golden.py "pcap/$capture.golden.json" "$WORK/sent" "$WORK/report.json" ||
      fail "$capture.pcap, $topology: not as in $capture.golden.json"
    [ "$(json "$WORK/report.json" verify mismatches)" = 0 ] || fail "$capture.pcap, $topology: the oracle disagrees"
  done
done

fib=pcap/routes.txt

for arguments in '--engine oracle' '--engine bloom --isa scalar --rx-burst 1' '--rx-burst 32 --batch 256' '--lcores 8 --spread' \
  '--topology pipeline --batch 4096' '--loops 50'; do
  # shellcheck disable=SC2086 # a list of options
  replay pcap/mix.pcap --verify $arguments
  rx=$(json "$WORK/report.json" packets rx)
  tx=$(json "$WORK/report.json" packets tx)
  no_route=$(json "$WORK/report.json" packets drops no_route)
  [ "$rx" = $((tx + no_route)) ] || fail "$arguments: rx $rx, tx $tx, no_route $no_route"
  [ "$(json "$WORK/report.json" verify mismatches)" = 0 ] || fail "$arguments: the oracle disagrees"
done

for capture in mix.pcapng:2000 mix-ns.pcap:500 mix-be.pcap:200 mix-be.pcapng:200; do
  replay "pcap/${capture%:*}" --verify
  [ "$(json "$WORK/report.json" packets rx)" = "${capture#*:}" ] || fail "$capture: $(json "$WORK/report.json" packets rx) packets"
done

replay pcap/mix.pcap --rate 100kpps --hgrm "$WORK/latency.hgrm"
[ -s "$WORK/latency.hgrm" ] || fail "--hgrm wrote nothing"
[ "$(json "$WORK/report.json" latency_ns count)" -gt 0 ] || fail "no latency was recorded"
says "$WORK/out" 'p99'

head -c 1000 pcap/mix.pcap >"$WORK/cut.pcap"
code=0
timeout 60 "$APP" replay "$WORK/cut.pcap" --fib pcap/routes.txt --no-huge >"$WORK/out" 2>&1 || code=$?
[ "$code" -le 1 ] || fail "a capture cut short: exit code $code"
says "$WORK/out" 'cut|truncated|short'
expect 1 "$APP" replay "$WORK/absent.pcap" --fib pcap/routes.txt --no-huge
expect 1 "$APP" replay "$WORK" --fib pcap/routes.txt --no-huge
expect 1 "$APP" replay pcap/routes.txt --fib pcap/routes.txt --no-huge
expect 2 "$APP" replay pcap/mix.pcap --fib pcap/routes.txt --no-huge --config '(0,0,1),(0,0,2)'
expect 3 "$APP" replay pcap/mix.pcap --fib pcap/routes.txt --no-huge --config '(9,0,1)'
