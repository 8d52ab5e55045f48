#!/usr/bin/env bash
# Compares `fwd-app run` with DPDK's l3fwd, on the same packets and routes, both at once on one CPU.
#
#   scripts/against-l3fwd.sh [--engines LIST] [--traffic LIST] [--packets LIST] [--burst N] [--ports N] [--hops N]
#                            [--seconds S] [--cpu N] [--fib V4.rules --fib V6.rules] [--json FILE]
#
#   --engines LIST   engines of fwd-app (default host,bloom)
#   --traffic LIST   v4, v6 and mix (default all three)
#   --packets LIST   packets that go round: 4096 fit a cache, 65536 do not (default 4096)
#   --burst N        packets that fwd-app receives at once (default 128); l3fwd has its own 32
#   --ports N        ports; the first one receives, all of them send (default 4)
#   --hops N         next hops of fwd-app's routes, a random one for each prefix, spread over the ports; l3fwd has one a port (default as l3fwd)
#   --seconds S      time of one comparison (default 24)
#   --cpu N          the CPU that all of them share (default 1)
#   --fib FILE       l3fwd rules of one family for these ports, IPv4 first; not with --hops (default: generated full tables)
#   --json FILE      where the ratios go (default lpm-bench/results/against-l3fwd-CPU.json)
#
# l3fwd is built from the distribution's source of its DPDK package, with room for full tables. l3fwd looks up in rte_fib with
# AVX-512. It checks no TTL, counts no drops and measures no latency; fwd-app does all that here too.
#
# Needs root, 1,350 free pages of 2 MB and 500 more an engine (reserved here when there are fewer, and given back at the end), and the
# network for the source. Everything is built in target/l3fwd. Takes a minute to build, then about 40 s a comparison.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

ENGINES=host,bloom TRAFFIC=v4,v6,mix PACKETS=4096 BURST=128 PORTS=4 HOPS=0 SECONDS_EACH=24 CPU=1 JSON='' FIB=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --*) [ $# -ge 2 ] || die "$1 needs a value; see --help" ;;&
    --engines) ENGINES=$2 ;;
    --traffic) TRAFFIC=$2 ;;
    --packets) PACKETS=$2 ;;
    --burst) BURST=$2 ;;
    --ports) PORTS=$2 ;;
    --hops) HOPS=$2 ;;
    --seconds) SECONDS_EACH=$2 ;;
    --cpu) CPU=$2 ;;
    --fib) FIB+=("$2") ;;
    --json) JSON=$2 ;;
    *) die "unknown argument $1; see --help" ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || die "needs root: DPDK's hugepages and telemetry socket are root's"
need_all dpkg-dev make

HERE=$TOP/scripts/l3fwd
FOLDER=$(target_dir)/l3fwd
mkdir -p "$FOLDER"

# The source package that the installed DPDK was built from, through lists of our own: the host's are left alone.
fetch_source() {
  local apt=$FOLDER/apt
  mkdir -p "$apt/lists" "$apt/sources.d"
  { sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null || true; } >"$apt/sources.list"
  for list in /etc/apt/sources.list.d/*.sources; do
    if grep -qs '^Types: *deb\( \|$\)' "$list"; then
      sed 's/^Types:.*/Types: deb-src/' "$list" >"$apt/sources.d/$(basename "$list")"
    fi
  done
  local options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=$apt/sources.d"
    -o "Dir::State::Lists=$apt/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$FOLDER" && apt-get "${options[@]}" source "dpdk=$(dpkg-query -W -f '${source:Version}' libdpdk-dev)" >/dev/null)
}

# Room for full tables, and no offload that a port lacks.
build_l3fwd() {
  local source=$1
  (
    cd "$source/examples/l3fwd"
    sed -i -E 's/(config_ipv4\.max_routes) = .*;/\1 = 1 << 21;/; s/(config\.max_routes) = .*;/\1 = 1 << 19;/
      s/(config_ipv4\.dir24_8\.num_tbl8) = .*;/\1 = 1 << 16;/
      s/(config\.trie\.num_tbl8) = .*;/\1 = 1 << 19;/' l3fwd_fib.c
    sed -i -E 's/(_L3FWD_LPM_MAX_RULES +).*/\11048576/; s/(IPV4_L3FWD_LPM_NUMBER_TBL8S +).*/\165536/
      s/(IPV6_L3FWD_LPM_NUMBER_TBL8S +).*/\1262144/' l3fwd_lpm.c
    # Its mempool has to hold the capture.
    sed -i -E 's/\(unsigned\)8192\)/(unsigned)131072)/
      s/(rxq_conf\.offloads = port_conf\.rxmode\.offloads);/\1 \& dev_info.rx_offload_capa;/
      s/^(\t*)(ret = rte_eth_dev_configure\(portid, nb_rx_queue,)/\1local_port_conf.rxmode.offloads \&= dev_info.rx_offload_capa;\n\1\2/' main.c
    make -s shared
  )
  cp -L "$source/examples/l3fwd/build/l3fwd" "$FOLDER/l3fwd"
}

build_driver() {
  local source=$1 flags libraries
  read -r -a flags <<<"$(pkg-config --cflags libdpdk)"
  read -r -a libraries <<<"$(pkg-config --libs libdpdk)"
  gcc -O3 -shared -fPIC -o "$FOLDER/librte_net_capture.so" "$HERE/net_capture.c" "${flags[@]}" -DALLOW_INTERNAL_API \
    -DALLOW_EXPERIMENTAL_API -I"$source/lib/ethdev" -I"$source/drivers/bus/vdev" -I"$source/lib/eal/include" \
    -Wno-zero-length-bounds "${libraries[@]}" -lrte_bus_vdev
}

if [ ! -x "$FOLDER/l3fwd" ]; then
  say "l3fwd from the source of DPDK $(pkg-config --modversion libdpdk)"
  fetch_source
  build_l3fwd "$(echo "$FOLDER"/dpdk-*/)"
fi
[ "$FOLDER/librte_net_capture.so" -nt "$HERE/net_capture.c" ] || build_driver "$(echo "$FOLDER"/dpdk-*/)"

say "fwd-app"
(cd "$TOP" && cargo build --release -p fwd-app)
APP=$(target_dir)/release/fwd-app

say "routes and packets"
# The same routes for both: rules that name a port for l3fwd, and for fwd-app these or, with --hops, ids of next hops.
if [ ${#FIB[@]} = 0 ]; then
  table=$FOLDER/hops-$HOPS
  for family in v4 v6; do
    if [ ! -s "$table-$family.txt" ]; then
      "$APP" fib generate --family "$family" -o "$table-$family.txt"
      # A random one of them for each prefix: those that the generator draws are mostly few.
      [ "$HOPS" = 0 ] || awk -v hops="$HOPS" 'BEGIN { srand(1) } /^[0-9a-f]/ { $2 = 1 + int(rand() * hops) } 1' "$table-$family.txt" \
        >"$table-$family.part"
      [ "$HOPS" = 0 ] || mv "$table-$family.part" "$table-$family.txt"
    fi
    rules=$table-ports-$PORTS-$family.rules
    [ -s "$rules" ] || "$APP" fib convert "$table-$family.txt" --to l3fwd --ports "$PORTS" -o "$rules"
    FIB+=("$rules")
  done
elif [ "$HOPS" != 0 ]; then
  die "--hops: the routes of --fib have their own next hops"
fi
[ ${#FIB[@]} = 2 ] || die "--fib: two files are wanted, IPv4 and IPv6"
V4=$(realpath "${FIB[0]}") V6=$(realpath "${FIB[1]}")
ROUTES="--fib $V4 --fib $V6"
[ "$HOPS" = 0 ] || ROUTES="--fib $table-v4.txt --fib $table-v6.txt"

# capture TRAFFIC PACKETS: makes it, and prints its name.
capture() {
  local file=$FOLDER/$1-$2-hops-$HOPS.pcap rules=("$V4" "$V6")
  [ "$1" = v4 ] && rules=("$V4")
  [ "$1" = v6 ] && rules=("$V6")
  "$HERE/traffic.py" --packets "$2" "$file" "${rules[@]}"
  printf '%s' "$file"
}

IFS=, read -r -a engines <<<"$ENGINES"
IFS=, read -r -a traffics <<<"$TRAFFIC"
IFS=, read -r -a sizes <<<"$PACKETS"

PAGES=/proc/sys/vm/nr_hugepages
before=$(cat $PAGES)
wanted=$((1350 + 500 * ${#engines[@]}))
if [ "$(free_hugepage_mb)" -lt $((wanted * 2)) ]; then
  trap 'echo "$before" >$PAGES' EXIT
  echo $((before + wanted)) >$PAGES
  [ "$(free_hugepage_mb)" -ge $((wanted * 2)) ] || die "$wanted free pages of 2 MB are wanted, this host cannot have them"
fi

eal() { # eal MEGABYTES PREFIX CAPTURE
  local port ports=(--vdev "net_capture0,pcap=$3")
  for port in $(seq $((PORTS - 1))); do ports+=(--vdev "net_capture$port"); done
  printf '%s ' -l "$CPU" -m "$1" --file-prefix "$2" --in-memory --no-pci --iova-mode=va --force-max-simd-bitwidth=512 \
    -d "$FOLDER/librte_net_capture.so" "${ports[@]}"
}

parts=()
for size in "${sizes[@]}"; do
  for traffic in "${traffics[@]}"; do
    say "$traffic, $size packets of 64 bytes, burst $BURST, $PORTS ports"
    file=$(capture "$traffic" "$size")
    contenders=("l3fwd=$FOLDER/l3fwd $(eal 2600 l3fwd "$file") -- -p $(printf %#x $(((1 << PORTS) - 1))) -P --config (0,0,$CPU) --lookup=fib --rule_ipv4=$V4 --rule_ipv6=$V6")
    contenders[0]=${contenders[0]/(0,0,$CPU)/\'(0,0,$CPU)\'}
    for engine in "${engines[@]}"; do
      contenders+=("$engine=$APP run $ROUTES --engine $engine --rx-burst $BURST --batch $BURST --config '(0,0,$CPU)' -- $(eal 900 "fwd-$engine" "$file")")
    done
    "$HERE/contend.py" --seconds "$SECONDS_EACH" --json "$FOLDER/part.json" "${contenders[@]}"
    parts+=("$traffic $size $(tr -d '\n' <"$FOLDER/part.json")")
  done
done

model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
name=$(tr -cs 'A-Za-z0-9\n' - <<<"$model" | tr 'A-Z' 'a-z' | sed 's/-*$//')
JSON=${JSON:-$TOP/lpm-bench/results/against-l3fwd-$name.json}
printf '%s\n' "${parts[@]}" | python3 -c '
import json, sys
cpu, dpdk, commit, burst, ports, hops, out = sys.argv[1:]
rows = []
for line in sys.stdin:
    traffic, packets, part = line.split(" ", 2)
    rows += [{"traffic": traffic, "packets": int(packets), **row} for row in json.loads(part)]
report = {"kind": "against-l3fwd", "cpu": cpu, "dpdk": dpdk, "commit": commit, "burst": int(burst), "ports": int(ports), "next_hops": int(hops) or int(ports), "frame_bytes": 64, "rows": rows}
open(out, "w").write(json.dumps(report, indent=1) + "\n")' \
  "$model" "$(pkg-config --modversion libdpdk)" "$(git -C "$TOP" rev-parse --short HEAD 2>/dev/null || echo unknown)" "$BURST" "$PORTS" "$HOPS" "$JSON"
note "ratios: $JSON"
