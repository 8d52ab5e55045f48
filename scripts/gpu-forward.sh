#!/usr/bin/env bash
# The part `forward` of gpu-check.sh, which sources this file: rates and latencies of the forwarder with GPU engines, next to `host`.
#
# Rates come from `fwd-app replay --generate` at full speed: each lcore polls its own queue, whose packets lie ready in mbufs, so no feeder
# bounds them. Each lcore has 65,536 packets to random addresses of random routes. Latencies come from `fwd-app run` over the driver
# net_capture (scripts/against/net_capture.c), which offers packets at a rate: from the time a packet is due to its sending.
#
# OUT/forward has the report of each step. After each call forward.json and the table are made from the reports of all steps that passed.
#
#   gpu-forward.sh latency JSON PPS LOADS SECONDS COMMAND..    one step; COMMAND is `fwd-app run` over net_capture with page=JSON.page

# shellcheck disable=SC2154 # gpu-check.sh sets dir, out, mock, listing, only and more

# Names of engines: gamt-MODE, gamt-host for gamt with the fallback host.
VERIFIED=(gamt-copy gamt-mapped gamt-persistent gamt-auto gale sail-gpu coop gamt-host host)
RATED=(host gamt-persistent)
LCORES=(14 8 4 2)
LOADS="10 50 80" LOAD_SECONDS=2
UPDATES_A_SECOND=100000
# Of 2 MB: for the mbufs of 14 lcores; with fewer than PAGES_LEAST none are used.
PAGES=1000 PAGES_LEAST=300

# options_of ENGINE: its options, in `options`.
options_of() {
  case "$1" in
    gamt-host) options=(--engine gamt --fallback host) ;;
    gamt-*) options=(--engine gamt --engine-arg "mode=${1#gamt-}") ;;
    *) options=(--engine "$1") ;;
  esac
}

report_of() { printf '%s/forward/%s.json' "$out" "${1//\//-}"; }
passed() { [ "$(member status "${results[$1]:-}")" = passed ]; }
# value KEY FILE: the first value of a key in a report; null without one.
value() {
  local found
  found=$(sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$2" 2>/dev/null | head -n 1)
  printf '%s' "${found:-null}"
}
# millionths NUMBER: as a whole number, since bash has no others; 0 for null and for numbers as small as 1e-5.
millionths() {
  local part
  [[ "$1" =~ ^([0-9]+)(\.([0-9]+))?$ ]] || { printf 0 && return; }
  part=${BASH_REMATCH[3]}000000
  printf '%d' $((10#${BASH_REMATCH[1]} * 1000000 + 10#${part:0:6}))
}
hundredths() { printf '%d.%02d' $(($1 / 1000000)) $(($1 / 10000 % 100)); }
decimal() { printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)); }

# leave STEP STATUS WHY: records a step that does not run.
leave() {
  if [ -n "$listing" ]; then
    note "$part  $1"
  elif [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; then
    record "$1" "$2" 0 "$3"
  fi
}

# is_known STEP ENGINE: whether this fwd-app has the engine's mode.
is_known() {
  [ "$2" != gamt-auto ] || [ -n "$listing$has_auto" ] || { leave "$1" skipped "this fwd-app has no mode=auto" && false; }
}

# replay STEP ARGS..
replay() {
  step "$1" 12 60 "$out/log.txt" env "${fault[@]}" "${forwarder[@]}" replay "${@:2}" "${common[@]}" "${no_huge[@]}" --json "$(report_of "$1")"
}

# demand STEP KEY PATTERN: a step that passed fails if its report has another value.
demand() {
  local found
  passed "$1" || return 0
  found=$(value "$2" "$(report_of "$1")")
  # shellcheck disable=SC2053 # a pattern
  [[ "$found" == $3 ]] || record "$1" failed 0 "$2 is '$found' in the report, not '$3'"
}

# verify STEP ENGINE ARGS..: every packet of a capture, with its destinations mapped into the routes, is compared with the oracle.
verify() {
  local options
  options_of "$2"
  replay "$1" "$dir/data/mix.pcap" --remap "${options[@]}" --verify --loops "$loops" --lcores "$few" "${@:3}"
}

# rate STEP ENGINE TOPOLOGY LCORES FAMILY ARGS..: a pipeline of more than five lcores receives on two fifths of them.
rate() {
  local options queues="" lcore receivers=$((($4 - 1) * 2 / 5))
  local -A share=([v4]=0 [v6]=100 [mix]=50) topology=([rtc]=run-to-completion [pipeline]=pipeline)
  options_of "$2"
  if [ "$3" = pipeline ] && [ "$receivers" -gt 1 ]; then
    for ((lcore = 1; lcore <= receivers; lcore++)); do queues+="${queues:+,}(0,$((lcore - 1)),$lcore)"; done
    options+=(--config "$queues")
  fi
  replay "$1" --generate table --packets $((packets * $4)) --v6-share "${share[$5]}" "${options[@]}" --topology "${topology[$3]}" --lcores "$4" \
    "${times[@]}" "${@:6}"
  demand "$1" packets_from "ready mbufs"
  demand "$1" engine_stall 0
}

# rates TOPOLOGY LCORES FAMILY
rates() {
  local engine
  for engine in "${RATED[@]}"; do rate "rate/$engine/$1/$2/$3" "$engine" "$@"; done
}

# rates_during_updates LCORES: the stream is applied again and again.
rates_during_updates() {
  local engine name
  for engine in "${RATED[@]}"; do
    name=updates/$engine/rtc/$1/mix
    rate "$name" "$engine" rtc "$1" mix "${updating[@]}"
    demand "$name" updates_applied "[1-9]*"
  done
}

# latencies ENGINE: with one lcore, at parts of the rate that it reached.
latencies() {
  local options name=latency/$1 base=rate/$1/rtc/1/mix pps=20000 json port
  options_of "$1"
  json=$(report_of "$name")
  if [ -z "$listing" ] && [ ! -f "$dir/lib/librte_net_capture.so" ]; then
    leave "$name" skipped "the pack has no net_capture, whose build needs DPDK's sources"
    return
  fi
  if [ -z "$listing$mock" ]; then
    passed "$base" || { leave "$name" left "needs the rate of $base" && return; }
    pps=$(millionths "$(value mpps "$(report_of "$base")")")
  fi
  local eal=(--lcores "$lcore_pair" -m 512 --no-pci --no-telemetry --iova-mode=va "--file-prefix=gpu-forward-$$"
    --vdev "net_capture0,pcap=$trace,page=$json.page,paced=1")
  for port in 1 2 3; do eal+=(--vdev "net_capture$port,page=$json.page,paced=1"); done
  if [ ${#no_huge[@]} = 0 ]; then eal+=(--in-memory); else eal+=(--no-huge --no-shconf); fi
  # EAL refuses -d for a library below a folder that anyone may write, such as /tmp, so it is loaded before.
  step "$name" 25 60 "$out/log.txt" "$BASH" "$dir/gpu-forward.sh" latency "$json" "$pps" "$LOADS" "$LOAD_SECONDS" \
    "${forwarder[@]/#LD_PRELOAD=/LD_PRELOAD=$dir/lib/librte_net_capture.so:}" run "${common[@]}" "${options[@]}" \
    --config '(0,0,1)' --mbufs 32768 --ctl "$json.ctl" -- "${eal[@]}"
}

# The most important first: the answers, then one lcore, then all lcores, then all of both families.
part_forward() {
  local engine lcores family most=1 fault=() no_huge=() updating=() common=() trace="" lcore_pair="" has_auto="" origin=202401
  [ -n "$listing" ] || prepare_forward
  for lcores in "${LCORES[@]}"; do
    [ "$lcores" -lt "$cpus" ] && most=$lcores && break
  done
  for engine in "${VERIFIED[@]}"; do
    ! is_known "verify/$engine" "$engine" || verify "verify/$engine" "$engine"
  done
  demand verify/gamt-host in_service false
  for engine in "${RATED[@]}"; do verify "verify/$engine/updates" "$engine" "${updating[@]}"; done
  if [ -n "$mock" ]; then
    fault=(MOCKCUDA_FAIL_OPERATION=150)
    verify lost/gamt-host gamt-host
    demand lost/gamt-host in_service true
    fault=()
  else
    leave lost/gamt-host skipped "only the mock driver loses its device on demand"
  fi
  for family in mix "${FAMILIES[@]}"; do
    rates rtc 1 "$family"
    [ "$most" = 1 ] || rates rtc "$most" "$family"
    [ "$family" = mix ] || continue
    for engine in "${OTHER_MODES[@]}"; do
      ! is_known "rate/$engine/rtc/1/mix" "$engine" || rate "rate/$engine/rtc/1/mix" "$engine" rtc 1 mix
    done
    for engine in "${RATED[@]}"; do latencies "$engine"; done
    rates_during_updates 1
    [ "$most" = 1 ] || rates_during_updates "$most"
  done
  for family in mix "${FAMILIES[@]}"; do
    for lcores in "${LCORES[@]}" 1; do
      [ "$lcores" = 1 ] || [ "$lcores" -lt "$cpus" ] || continue
      rates pipeline "$lcores" "$family"
      [ "$lcores" = 1 ] || [ "$lcores" = "$most" ] || rates rtc "$lcores" "$family"
    done
  done
  [ -n "$listing" ] || report_forward
}

# with_forwarder LIBRARY..: sets `forwarder`, with these libraries loaded first. EAL loads the drivers of its release's folder; without
# that folder the pack's libraries are used, and the handler of mempools, which fwd-app is not linked to, is loaded before.
with_forwarder() {
  local first=("$@") drivers=/
  [ ! -f "$dir/lib/drivers" ] || drivers=$(cat "$dir/lib/drivers")
  forwarder=("${with_driver[@]}")
  if [ ! -d "$drivers" ]; then
    forwarder+=("LD_LIBRARY_PATH=$dir/lib")
    first+=("$dir/lib/librte_mempool_ring.so")
  fi
  forwarder+=("LD_PRELOAD=${first[*]}" "$dir/bin/fwd-app")
}

# The CPUs that this script may use, one a line.
allowed_cpus() {
  local range
  for range in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' ' '); do seq "${range%-*}" "${range#*-}"; done
}

# Of 2 MB; the kernel's default size may be another.
PAGES_OF_2MB=/sys/kernel/mm/hugepages/hugepages-2048kB
free_pages() { cat $PAGES_OF_2MB/free_hugepages 2>/dev/null || echo 0; }

# Sets `no_huge` if the host has too few pages. Those that are reserved here are returned at the end.
reserve_pages() {
  local file=$PAGES_OF_2MB/nr_hugepages before
  before=$(cat $file 2>/dev/null || echo 0)
  if [ "$(free_pages)" -lt $PAGES ] && { echo $((before + PAGES - $(free_pages))) >$file; } 2>/dev/null; then
    pages_before=$before
  fi
  [ "$(free_pages)" -lt $PAGES_LEAST ] || return 0
  no_huge=(--no-huge)
  note "only $(free_pages) of $PAGES pages of 2 MB: figures without them are marked with *"
}

clean_up_forward() {
  rm -rf "$made"
  [ -z "$pages_before" ] || echo "$pages_before" >$PAGES_OF_2MB/nr_hugepages
}

# Sets what the steps share: pages, routes, updates and packets. `made` is a folder for files that the pack lacks.
prepare_forward() {
  local family table routes=() updates cpus_allowed
  mkdir -p "$out/forward"
  made=$(mktemp -d) pages_before=""
  trap clean_up_forward EXIT
  if [ -n "$mock" ]; then no_huge=(--no-huge); else reserve_pages; fi
  forwarder_says --version
  for family in v4 v6; do
    table=$dir/data/$family-202401.txt.xz
    if [ -n "$mock" ] || [ ! -f "$table" ]; then
      table=$made/$family.txt origin=generated
      forwarder_says fib generate --family "$family" ${mock:+--routes 2000} -o "$table"
    fi
    routes+=(--fib "$table")
  done
  updates=$dir/data/updates-ris-20190101.txt.xz
  if [ -n "$mock" ] || [ ! -f "$updates" ]; then
    updates=$made/updates.txt
    forwarder_says fib generate "${routes[@]}" --updates 100000 -o "$updates"
  fi
  updating=(--updates "$updates" --update-rate "$UPDATES_A_SECOND" --update-loops 1000000)
  common=("${routes[@]}" ${mock:+--stall-us 10000000})
  trace=$out/forward/trace.pcap
  [ -s "$trace" ] || forwarder_says replay "${routes[@]}" --generate table --packets 4096 --no-huge --save-trace "$trace"
  # Exit code 2: the parameter is unknown.
  echo 192.0.2.0/24 1 >"$made/one.txt"
  timeout 30 "${forwarder[@]}" lookup --fib "$made/one.txt" --engine gamt --engine-arg mode=auto 192.0.2.1 >>"$out/log.txt" 2>&1
  [ $? = 2 ] || has_auto=yes
  mapfile -t cpus_allowed < <(allowed_cpus)
  lcore_pair=0@${cpus_allowed[0]},1@${cpus_allowed[1]:-${cpus_allowed[0]}}
}

forwarder_says() {
  "${forwarder[@]}" "$@" >>"$out/log.txt" 2>&1 || die "fwd-app ${*:1:2} failed: see $out/log.txt"
}

# read_row STEP: the parts of its name, its rates in millionths of Mpps, and the ratio to `host` with as many lcores, in millionths.
read_row() {
  local base base_rate
  file=$(report_of "$1") star="" rate="" own="" ratio=""
  IFS=/ read -r kind engine topology lcores family <<<"$1"
  pages=$(value huge_pages "$file")
  [ "$pages" = true ] || star="*"
  [ "$kind" = rate ] || [ "$kind" = updates ] || return 0
  rate=$(millionths "$(value mpps "$file")")
  own=$((rate / lcores))
  base=rate/host/rtc/$lcores/$family
  passed "$base" || return 0
  base_rate=$(millionths "$(value mpps "$(report_of "$base")")")
  [ "$base_rate" = 0 ] || ratio=$((rate * 1000000 / base_rate))
}

loads_of() { sed -n 's/^ *\({"percent".*}\),\{0,1\}$/\1/p' "$1"; }

row() {
  printf '    {"step": "%s", "engine": "%s", "huge_pages": %s, ' "$1" "$engine" "$pages"
  case "$kind" in
    verify | lost) printf '"checked": %s, "mismatches": %s}' "$(value checked "$file")" "$(value mismatches "$file")" ;;
    latency) printf '"rate_pps": %s, "loads": [%s]}' "$(value rate_pps "$file")" "$(loads_of "$file" | paste -sd, -)" ;;
    *)
      printf '"topology": "%s", "lcores": %s, "family": "%s", "updates_a_second": %s, ' "$topology" "$lcores" "$family" \
        "$([ "$kind" = rate ] && echo 0 || echo "$UPDATES_A_SECOND")"
      printf '"mpps": %s, "mpps_a_core": %s, "to_host": %s, "p50_ns": %s, "p99_ns": %s}' "$(decimal "$rate")" "$(decimal "$own")" \
        "$([ -z "$ratio" ] && echo null || decimal "$ratio")" "$(value p50 "$file")" "$(value p99 "$file")"
      ;;
  esac
}

# Writes forward.json, and prints the rates and the latencies. In rows of rates latencies count from RX to TX at full speed.
report_forward() {
  local name file star pages rate own ratio kind engine topology lcores family separator="" head line numbers
  {
    printf '{\n'
    facts
    printf '  "tables": "%s",\n  "rows": [' "$origin"
    for name in "${order[@]}"; do
      passed "$name" && [ -f "$(report_of "$name")" ] || continue
      read_row "$name"
      printf '%s\n' "$separator"
      row "$name"
      separator=,
    done
    printf '\n  ]\n}\n'
  } >"$out/forward.json.part"
  mv "$out/forward.json.part" "$out/forward.json"
  [ -z "$mock" ] || note "the figures of the mock driver say nothing about a GPU"
  head=$(printf '\n%-24s %-9s %6s %-6s %9s %9s %7s' engine topology lcores family Mpps "a core" "/ host")
  for name in "${order[@]}"; do
    [[ "$name" == rate/* || "$name" == updates/* ]] && passed "$name" || continue
    read_row "$name"
    [ "$kind" = rate ] || engine+=", $UPDATES_A_SECOND/s"
    printf '%s%-24s %-9s %6s %-6s %9s %9s %7s\n' "${head:+$head$'\n'}" "$engine$star" "$topology" "$lcores" "$family" "$(hundredths "$rate")" \
      "$(hundredths "$own")" "$([ -z "$ratio" ] || hundredths "$ratio")"
    head=""
  done
  head=$(printf '\n%-24s %6s %9s %9s %9s %6s' "engine, one lcore" load Mpps "p50 us" "p99 us" sent)
  for name in "${order[@]}"; do
    [[ "$name" == latency/* ]] && passed "$name" || continue
    read_row "$name"
    while read -r line; do
      read -r -a numbers < <(sed 's/"[^"]*"//g; s/[^0-9]/ /g' <<<"$line")
      printf '%s%-24s %4s %% %9s %9s %9s %4s %%\n' "${head:+$head$'\n'}" "$engine$star" "${numbers[0]}" "$(hundredths "${numbers[1]}")" \
        "$(hundredths $((numbers[3] * 1000)))" "$(hundredths $((numbers[4] * 1000)))" "${numbers[2]}"
      head=""
    done < <(loads_of "$file")
  done
}

# The page of net_capture, its `struct page`: words of 64 bits.
PAGE_BYTES=102400
RUN=0 RATE=1 EPOCH=2 TSC_HZ=3 FIRST_SLOT=8712 SLOTS=3776

# write_word PAGE WORD VALUE
write_word() {
  local at bytes=""
  for ((at = 0; at < 64; at += 8)); do bytes+=$(printf '\\x%02x' $(($3 >> at & 255))); done
  printf '%b' "$bytes" | dd of="$1" bs=8 seek="$2" conv=notrunc status=none
}

# words PAGE FIRST COUNT: one a line.
words() { od -A n -v -t u8 -w8 -j $(($2 * 8)) -N $(($3 * 8)) "$1"; }

# The greatest latency of a slot, in cycles: 64 slots for each power of two.
slot_cycles() {
  local shift=$((($1 >> 6) - 1))
  if [ "$1" -lt 128 ]; then echo "$1"; else echo $(((($1 & 63) + 65 << shift) - 1)); fi
}

# latency JSON PPS LOADS SECONDS COMMAND..: p50 and p99 at percentages of PPS. `sent_percent` is below 100 where COMMAND does not keep up.
latency() {
  local json=$1 pps=$2 loads=$3 load_seconds=$4 page=$1.page pages=true epoch=0 load began sent sum slot counts megahertz percents found separator=""
  shift 4
  [[ " $* " != *" --no-huge "* ]] || pages=false
  head -c $PAGE_BYTES /dev/zero >"$page"
  "$@" >"$json.out" 2>&1 &
  process=$!
  trap 'kill "$process" 2>/dev/null; wait "$process" || true' EXIT
  until grep -q "forwarding; Ctrl-C stops" "$json.out"; do
    kill -0 "$process" 2>/dev/null || { cat "$json.out" && exit 1; }
    sleep 0.1
  done
  megahertz=$(($(words "$page" $TSC_HZ 1) / 1000000))
  {
    printf '{\n  "rate_pps": %s,\n  "huge_pages": %s,\n  "loads": [' "$pps" "$pages"
    for load in $loads; do
      write_word "$page" $RATE $((pps * load / 100))
      write_word "$page" $EPOCH $((epoch += 1))
      write_word "$page" $RUN 1
      sleep 0.5
      # A new epoch empties the latencies.
      write_word "$page" $EPOCH $((epoch += 1))
      began=${EPOCHREALTIME//[!0-9]/}
      sleep "$load_seconds"
      write_word "$page" $RUN 0
      sent=$((${EPOCHREALTIME//[!0-9]/} - began))
      sleep 0.1
      kill -0 "$process" 2>/dev/null || { cat "$json.out" && exit 1; } >&2
      mapfile -t counts < <(words "$page" $FIRST_SLOT $SLOTS)
      sum=0
      for slot in "${!counts[@]}"; do sum=$((sum + counts[slot])); done
      [ $sum -gt 0 ] || { echo "nothing was sent at $load % of $pps packets a second" && exit 1; } >&2
      sent=$((sum * 100000000 / (pps * load / 100 * sent)))
      percents=(50 99) found=() below=0
      for slot in "${!counts[@]}"; do
        below=$((below + counts[slot]))
        while [ ${#found[@]} -lt 2 ] && [ $((below * 100)) -ge $((sum * percents[${#found[@]}])) ]; do
          found+=($(($(slot_cycles "$slot") * 1000 / megahertz)))
        done
      done
      printf '%s\n    {"percent": %d, "offered_pps": %d, "sent_percent": %d, "p50_ns": %d, "p99_ns": %d}' "$separator" "$load" \
        $((pps * load / 100)) "$sent" "${found[@]}"
      separator=,
    done
    printf '\n  ]\n}\n'
  } >"$json.part"
  mv "$json.part" "$json"
  rm -f "$page" "$json.out"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  "$@"
fi
