#!/usr/bin/env bash
# Shows the forwarder at work: a bundled capture against a full-size table, in both topologies, with rates, drops and latency.
#
#   scripts/demo.sh                   950,000 IPv4 and 200,000 IPv6 routes
#   scripts/demo.sh --v4 N --v6 N     tables of other sizes
#   scripts/demo.sh --seconds N       how long each measurement is about to take (default 3)
#
# On a fresh Debian or Ubuntu, as root or with sudo: installs missing packages, builds, makes the tables once and keeps
# them, so that a second run is quick. Uses hugepages where some are free and does without elsewhere. Each topology runs twice: as
# fast as it can, with every packet checked against the oracle before, and at 100,000 packets a second for the latency.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

v4_routes=950000 v6_routes=200000 seconds=3
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --v4 | --v6 | --seconds)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { note "demo.sh: $1 wants a number above 0" >&2 && exit 2; }
      case "$1" in --v4) v4_routes=$2 ;; --v6) v6_routes=$2 ;; *) seconds=$2 ;; esac
      shift 2
      ;;
    *) usage >&2 && exit 2 ;;
  esac
done

cd "$TOP"
need_all
say "building fwd-app"
cargo build --release -p fwd-app
app=$(target_dir)/release/fwd-app
folder=$(target_dir)/demo
mkdir -p "$folder"

# table FAMILY ROUTES : makes a table of this size unless it exists, and prints its path. It appears whole or not at all.
table() {
  local family=$1 routes=$2 file=$folder/$1-$2.txt
  if [ ! -s "$file" ]; then
    "$app" fib generate --family "$family" --routes "$routes" --seed 1 -o "$file.part" >&2
    mv "$file.part" "$file"
  fi
  printf '%s' "$file"
}
say "tables"
v4=$(table v4 "$v4_routes") v6=$(table v6 "$v6_routes")
# The capture's destinations are documentation addresses, which are in no Internet table.
fib=(--fib "$v4" --fib "$v6" --fib "$TOP/pcap/routes.txt")
note "$v4: $(wc -l <"$v4") lines, $v6: $(wc -l <"$v6") lines, pcap/routes.txt: $(grep -vc '^#' pcap/routes.txt) routes"

pages=()
if [ "$(free_hugepage_mb)" -ge 512 ]; then
  note "hugepages: $(free_hugepage_mb) MB free"
else
  note "hugepages: fewer than 512 MB free, doing without (reserve some: sysctl -w vm.nr_hugepages=1024)"
  pages=(--no-huge)
fi

replay() {
  local name=$1
  shift
  "$app" replay pcap/mix.pcap "${fib[@]}" "${pages[@]}" --json "$folder/$name.json" "$@"
}

number() { python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: value = value[key]
print(int(value))' "$@"; }

packets=$(number pcap/mix.golden.json totals rx)
paced_loops=$((seconds * 100000 / packets + 1))
for topology in run-to-completion pipeline; do
  say "$topology: every packet checked against the oracle"
  replay "$topology-verify" --topology "$topology" --loops 20 --verify
  say "$topology: as fast as it can"
  # The loop count suits 5 Mpps, the rate of most hosts without hugepages; a faster host ends sooner.
  replay "$topology-max" --topology "$topology" --loops $((seconds * 5000000 / packets + 1))
  say "$topology: 100 kpps, latency from the intended send time"
  replay "$topology-paced" --topology "$topology" --loops "$paced_loops" --rate 100kpps --hgrm "$folder/$topology.hgrm"
done

read -r load _ </proc/loadavg
say "summary ($(nproc) CPUs, load $load: figures are reliable only on an idle host)"
python3 - "$folder" <<'PYTHON'
import json, sys

print(f"{'topology':<18} {'Mpps':>7} {'Gbit/s':>7} {'p50 us':>8} {'p99 us':>8} {'p99.9 us':>9} {'checked':>9} {'mismatches':>10}  drops")
for topology in ("run-to-completion", "pipeline"):
    full, paced, verified = (json.load(open(f"{sys.argv[1]}/{topology}-{kind}.json")) for kind in ("max", "paced", "verify"))
    rate, latency, verify = full["rate"], paced["latency_ns"], verified["verify"]
    drops = ", ".join(f"{reason} {count}" for reason, count in full["packets"]["drops"].items() if count) or "none"
    times = [latency[key] / 1000 for key in ("p50", "p99", "p99_9")]
    print(f"{topology:<18} {rate['mpps']:7.2f} {rate['gbps']:7.2f} {times[0]:8.1f} {times[1]:8.1f} {times[2]:9.1f}", end=" ")
    print(f"{verify['checked']:9} {verify['mismatches']:10}  {drops}")
PYTHON
note "reports and histograms: $folder/*.json, $folder/*.hgrm"
