#!/usr/bin/env bash
# testpmd's packet generator (`flowgen`) over net_memif into `fwd-app run`, and back to testpmd: both count the same packets.
#
#   testpmd port 0 --memif--> port 0   fwd-app   port 1 --memif--> testpmd port 1
#
# All packets leave by port 1. testpmd stops generating, receives until both rings are empty, then stops: nothing is in flight when it counts.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

[ -e "$(pkg-config --variable=libdir libdpdk)/librte_net_memif.so" ] || skip "this DPDK has no net_memif"
has dpdk-testpmd || skip "there is no dpdk-testpmd (package dpdk-dev)"

testpmd=''
cleanup() {
  for one in $process $testpmd; do kill -9 "$one" 2>/dev/null; done
  wait
}
# The destinations of flowgen, half of them without a route.
printf '10.253.0.0/25 2\n10.253.1.0/24 2\n' >"$WORK/routes"
memif=socket-abstract=no,secret=abcdef
eal() { printf '%s ' --no-huge -m "$1" --no-pci --no-shconf --no-telemetry --file-prefix "smoke-$2-$$"; }

# shellcheck disable=SC2046 # words
"$APP" run --fib "$WORK/routes" --config '(0,0,0),(1,0,0)' --ctl "$ctl_socket" --json "$WORK/report.json" -- $(eal 128 flowgen) -l 0 \
  --vdev "net_memif0,role=server,$memif,socket=$WORK/socket,id=0" --vdev "net_memif1,role=server,$memif,socket=$WORK/socket,id=1" \
  >"$WORK/out" 2>"$WORK/err" &
process=$!
forwards

mkfifo "$WORK/words"
last=$(($(nproc) - 1))
# Two threads: the first one only reads commands.
# shellcheck disable=SC2046
stdbuf -oL dpdk-testpmd $(eal 256 testpmd) --lcores "0@0,1@$last" \
  --vdev "net_memif0,role=client,$memif,socket=$WORK/socket,id=0" --vdev "net_memif1,role=client,$memif,socket=$WORK/socket,id=1" \
  -- -i --total-num-mbufs=8192 --flowgen-flows=512 --forward-mode=flowgen --disable-link-check <"$WORK/words" >"$WORK/testpmd.out" 2>"$WORK/testpmd.err" &
testpmd=$!
exec 3>"$WORK/words"
words() { printf '%s\n' "$@" >&3; }

counted() { ctl show stats --json >"$WORK/stats" && json "$WORK/stats" packets "$@"; }
is_up() { [ "$(grep -c 'link up' "$WORK/err")" -ge 2 ]; }
settled() {
  local before
  before=$(counted rx)
  sleep 1
  [ "$before" -gt 0 ] && [ "$(counted rx)" = "$before" ]
}
# sent_and_received : sets $sent and $received from testpmd's `show port stats`. `stop` prints counters in another form.
sent_and_received() {
  sent=$(awk '/TX-packets:.*TX-errors/ { n += $2 } END { print n + 0 }' "$WORK/testpmd.out")
  received=$(awk '/RX-packets:.*RX-missed/ { n += $2 } END { print n + 0 }' "$WORK/testpmd.out")
}
has_shown() { [ "$(grep -c 'TX-packets:.*TX-errors' "$WORK/testpmd.out")" -ge 2 ]; }

within 30 is_up
words start
sleep 2
words stop 'set fwd rxonly' start
within 30 settled
words stop 'show port stats all'
within 30 has_shown
sent_and_received
stop
words quit
exec 3>&-
wait "$testpmd" || fail "testpmd: exit code $?"
testpmd=''

python3 - "$WORK/report.json" "$sent" "$received" <<'PYTHON' || fail "testpmd and fwd-app have not counted the same packets"
import json, sys
packets, sent, received = json.load(open(sys.argv[1]))["packets"], int(sys.argv[2]), int(sys.argv[3])
dropped = sum(packets["drops"].values())
print(f"flowgen: testpmd sent {sent} and received {received}; fwd-app received {packets['rx']}, sent {packets['tx']}, dropped {dropped}")
sys.exit(not (sent == packets["rx"] and received == packets["tx"] and packets["tx"] + dropped == packets["rx"]
              and packets["drops"]["no_route"] > 0 and packets["tx"] > 0 and set(k for k, v in packets["drops"].items() if v) <= {"no_route", "tx_full"}))
PYTHON
