#!/usr/bin/env bash
# Fuzzes parsers, feeds, datapath, router, engines, control socket and the mock's PTX compiler with libFuzzer, each target in turn.
#
#   scripts/fuzz.sh [--cpu] [--logs DIR] [SECONDS] [TARGET..]
#                                                       each target, or all, for SECONDS (30)
#   scripts/fuzz.sh --replay TARGET FILE..              these inputs, in their order and in one process
#   scripts/fuzz.sh --list                              name the targets, the most valuable first
#
# Starts from fwd-app/fuzz/seeds/TARGET, which has earlier findings, and from the inputs that earlier runs kept in target/fuzz-corpus.
# Prints a line a target: libFuzzer's edges and features, inputs kept, executions. --cpu counts seconds of CPU time, for a busy machine.
# --logs DIR keeps each target's last output as DIR/TARGET.log and the lines as DIR/SUMMARY. A finding is written to
# target/fuzz-found/TARGET; after the fix copy it to fwd-app/fuzz/seeds/TARGET/, where the test `fuzz_seeds` of fwd-app runs it.
# Installs cargo-fuzz if missing.
#
# Exit 0: nothing was found. Exit 1: a finding, or the build failed. Exit 2: bad usage.

set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CRATE=$TOP/fwd-app/fuzz
FUZZ_TARGET=$TOP/target/fuzz
CORPUS=$TOP/target/fuzz-corpus
FOUND=$TOP/target/fuzz-found
TRIPLE=x86_64-unknown-linux-gnu
# A slower input is a hang; one that takes more memory is a finding.
TIMEOUT_S=120
RSS_MB=4096

usage_error() {
  note "fuzz.sh: $*; see --help" >&2
  exit 2
}

targets() { sed -n 's/^    ("\([a-z0-9_]*\)", .*),$/\1/p' "$CRATE/src/lib.rs"; }

is_target() { targets | grep -qx "$1"; }

# Without a sanitizer stable Rust is enough: coverage is an LLVM pass, which -C flags enable.
build() {
  need_all g++
  has cargo-fuzz || cargo install --locked cargo-fuzz || die "cargo-fuzz is missing: cargo install --locked cargo-fuzz"
  cargo fuzz build --fuzz-dir "$CRATE" --target-dir "$FUZZ_TARGET" --sanitizer none "$@"
}

binary() { printf '%s/%s/release/%s' "$FUZZ_TARGET" "$TRIPLE" "$1"; }

once() {
  local target=$1 seconds=$2 log=$3 last count rc=0 TIMEFORMAT='%U %S'
  { time FUZZ_HISTORY="$FOUND/$target" "$(binary "$target")" -max_total_time="$seconds" -timeout="$TIMEOUT_S" \
    -rss_limit_mb="$RSS_MB" -print_final_stats=1 -artifact_prefix="$FOUND/$target/" "$CORPUS/$target" \
    "$CRATE/seeds/$target" >"$log" 2>&1; } 2>"$log.cpu" || rc=$?
  cpu=$((cpu + $(awk '{ printf "%.0f", $1 + $2 }' "$log.cpu")))
  rm -f "$log.cpu"
  last=$(grep -a 'cov: ' "$log" | tail -n 1)
  covered=$(sed -n 's/.*cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/cov \1, ft \2, corpus \3/p' <<<"$last")
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  [ -n "$count" ] || count=$(sed -n 's/^#\([0-9]*\).*/\1/p' <<<"$last")
  executed=$((executed + ${count:-0}))
  return "$rc"
}

fuzz() {
  local target=$1 seconds=$2 log=$3 begin=$SECONDS found=nothing cpu=0 executed=0 covered="" rc=0
  mkdir -p "$CORPUS/$target" "$FOUND/$target"
  while :; do
    once "$target" "$seconds" "$log" || rc=$?
    if [ "$rc" != 0 ] || [ -z "$by_cpu" ] || [ "$cpu" -ge "$seconds" ]; then break; fi
  done
  [ "$rc" = 0 ] || found="FOUND $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
  printf '%-12s %5d s, %d s of CPU: %s, executions %d (%d a second of CPU): %s\n' "$target" $((SECONDS - begin)) "$cpu" \
    "${covered:-no coverage}" "$executed" $((executed / (cpu > 0 ? cpu : 1))) "$found"
  return "$rc"
}

seconds=30 by_cpu="" logs="" replay="" chosen=() files=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --list) targets && exit 0 ;;
    --cpu) by_cpu=yes ;;
    --logs)
      [ $# -ge 2 ] || usage_error "--logs wants a folder"
      logs=$2
      shift
      ;;
    --replay)
      [ $# -ge 3 ] || usage_error "--replay wants a target and files"
      is_target "$2" || usage_error "no target $2: there are $(targets | paste -sd' ')"
      replay=$2
      shift 2
      files=("$@")
      break
      ;;
    *[!0-9]*)
      is_target "$1" || usage_error "no target $1: there are $(targets | paste -sd' ')"
      chosen+=("$1")
      ;;
    *) seconds=$1 ;;
  esac
  shift
done
[ "${#chosen[@]}" -gt 0 ] || mapfile -t chosen < <(targets)
if [ -n "$logs" ]; then
  mkdir -p "$logs" || die "cannot make $logs"
  logs=$(cd "$logs" && pwd)
fi

if [ -n "$replay" ]; then
  build "$replay" || exit 1
  "$(binary "$replay")" -timeout="$TIMEOUT_S" "${files[@]}" || exit 1
  exit 0
fi

build || exit 1
failed=0
for target in "${chosen[@]}"; do
  log=$(mktemp)
  [ -z "$logs" ] || log=$logs/$target.log
  if ! line=$(fuzz "$target" "$seconds" "$log"); then
    failed=1
    note "$line"
    grep -a -A4 'panicked at\|ERROR: libFuzzer' "$log" | head -n 20
    note "replay it: scripts/fuzz.sh --replay $target FILE; the deltas that went before it are beside it, as deltas-NNN"
  else
    note "$line"
  fi
  if [ -n "$logs" ]; then printf '%s\n' "$line" >>"$logs/SUMMARY"; else rm -f "$log"; fi
done
exit "$failed"
