#!/usr/bin/env bash
# `scripts/gpu-check.sh`: the steps of all parts, and the part `forward` over the mock driver, from a folder with what that part needs.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

expect 0 bash scripts/gpu-check.sh --list
for step in tests:test-cu rates:lookup-v4 forward:rate/gamt-persistent/rtc/14/mix forward:latency/host figures:gamt/fig16; do
  says "$WORK/out" "^${step%%:*}  ${step#*:}\$"
done
# Each test binary of lpm-gpu is packed, or known not to need a GPU.
for file in lpm-gpu/tests/*; do
  name=$(basename "$file" .rs)
  [ "$name" = common ] || grep -qE "^TESTS(_ELSEWHERE)?=.*[( ]${name}[: )]" scripts/gpu-check.sh || fail "gpu-check.sh does not know the tests $name"
done
expect 2 bash scripts/gpu-check.sh --run nonsense "$WORK" "$WORK/results"

# The page that net_capture shares with its users.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=scripts python3 -c 'from against.page import *
print(f"PAGE_BYTES={BYTES}\nRUN={RUN} RATE={RATE} EPOCH={EPOCH} TSC_HZ={TSC_HZ} FIRST_SLOT={FIRST_SLOT} SLOTS={SLOTS}")' >"$WORK/page"
[ "$(grep -cxFf "$WORK/page" scripts/gpu-forward.sh)" = 2 ] || fail "gpu-forward.sh has another page than against/page.py"

folder=$(dirname "$APP") mock=
for found in "$folder"/libmockcuda.so "$folder"/deps/libmockcuda.so; do
  [ ! -f "$found" ] || mock=$found
done
[ -n "$mock" ] || skip "no libmockcuda.so: cargo build -p mockcuda"
pack=$WORK/pack
mkdir -p "$pack"/{bin,tests,data}
ln -s "$APP" "$pack/bin/fwd-app"
ln -s "$mock" "$pack/tests/libmockcuda.so"
cp pcap/mix.pcap "$pack/data/"
cp scripts/gpu-check.sh scripts/gpu-forward.sh "$pack/"

forward() { expect 0 bash "$pack/gpu-check.sh" --run forward --mock "$pack" "$WORK/results"; }
forward
says "$WORK/out" '^latency/host +skipped'
says "$WORK/out" '^gamt-copy, 100000/s\* +rtc +1 mix +[0-9.]+ +[0-9.]+ +[0-9.]+$'
says "$WORK/out" '^host\* +rtc +1 mix +[0-9.]+ +[0-9.]+ +1.00$'
python3 - "$WORK/results/forward.json" <<'END' || fail "forward.json is not as expected"
import json, sys
rows = {row["step"]: row for row in json.load(open(sys.argv[1]))["rows"]}
checks = [row for step, row in rows.items() if step.startswith(("verify/", "lost/"))]
assert len(checks) >= 10 and all(row["checked"] == 40000 and row["mismatches"] == 0 for row in checks), checks
rates = [row for row in rows.values() if "mpps" in row]
assert len(rates) == 6 and all(row["mpps"] > 0 and row["p99_ns"] >= row["p50_ns"] > 0 for row in rates), rates
END
forward
says "$WORK/out" '^rate/host/rtc/1/mix: has passed before$'
