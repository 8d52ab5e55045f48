#!/usr/bin/env bash
# All checks before a change is merged: installs missing packages, then runs every check and prints a summary.
#
#   scripts/test.sh                run everything
#   scripts/test.sh STEP..         run these steps only, and the builds that they need
#   scripts/test.sh --list         name the steps
#
# As root or with sudo, on the releases of docs/install.md. Hugepages are not needed. FWD_DATA names a folder of real tables; without it
# tests that need them print SKIPPED. FWD_REQUIRE (a list of avx512f, dpdk, gpu, ptxas) makes tests fail instead of skip; unset it is dpdk,
# gpu (the mock driver, or with LPM_GPU=real the host's), and avx512f on a CPU with AVX-512. With CI set, a step that lacks a package
# fails. clang-16 compares the PTX byte for byte, if installable. FWD_MODELS=full explores the crate `models` further.
#
# Quick checks run during compilation. A step's output is printed when it ends (at once for a single step), and stays in target/test.
# Exit 0: all steps passed. Exit 1: one failed. Exit 2: bad usage.

set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STEPS=(fmt shell captures ptx build tests test clippy doc doctest isa smoke docs package server)
# The steps that a step needs, or only runs after. The guest waits for emulated devices, so it runs at the same time at a higher priority. Tests
# and smoke scripts poll queues and use timers, which fire late when they compete for two CPUs, so they take turns. Compilers that no step waits
# for (FILLERS) run at idle priority.
declare -A NEEDS=([test]=tests [isa]=build [smoke]=build [docs]=build [package]=build [server]='build package')
declare -A AFTER=([tests]=build [clippy]=tests [doc]=clippy [doctest]=doc [test]='tests server' [smoke]=test [docs]=smoke)
COMPILERS=(tests)
FILLERS=(clippy doc doctest)

features() {
  cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for feature in sorted({"testing", "dpdk"} & package["features"].keys()):
        print(package["name"] + "/" + feature)' | paste -sd, -
}
rooted() {
  as_root env CI="${CI:-}" FWD_APP="$FWD_APP" FWD_DATA="${FWD_DATA:-}" FWD_DEB="${FWD_DEB:-}" LIBCLANG_PATH="${LIBCLANG_PATH:-}" \
    PYTHONDONTWRITEBYTECODE=1 "$@"
}

step_fmt() { cargo fmt --all --check; }
step_captures() { python3 scripts/make_captures.py --self-test && python3 scripts/make_captures.py --check; }
step_shell() {
  local file bad=0
  for file in .ci/run scripts/*.sh scripts/{smoke,server,against}/*.sh; do
    bash -n "$file" || bad=1
  done
  (need_packages shellcheck) || return 1
  shellcheck -x -P scripts:scripts/smoke -S warning scripts/*.sh scripts/{smoke,server,against}/*.sh .ci/run || bad=1
  scripts/lib_test.sh || bad=1
  return "$bad"
}
step_ptx() { scripts/ptx.sh --check && scripts/ptx.sh --ptxas; }
# For several steps: a release build would compile everything again. A test among the targets enables the features of dev-dependencies, as
# `tests` does; without it cargo would compile most crates twice.
step_build() { cargo build --workspace --features "$FEATURES" --bin fwd-app --test links; }
# With cargo-nextest the list of binaries is written here, so that `test` does not wait for cargo's lock, which `clippy` may hold.
step_tests() {
  if ! has cargo-nextest; then
    cargo test --workspace --features "$FEATURES" --no-run
    return
  fi
  cargo metadata --format-version 1 --features "$FEATURES" >"$STATE/metadata.json" &&
    cargo nextest list --workspace --features "$FEATURES" --list-type binaries-only --message-format json >"$STATE/binaries.json"
}
step_test() {
  local log=$STATE/printed failed=0 run=(test --workspace --features "$FEATURES" --lib --bins --tests) more=(-- --show-output)
  ! has cargo-nextest || run=(nextest run --cargo-metadata "$STATE/metadata.json" --binaries-metadata "$STATE/binaries.json"
    --success-output immediate) more=()
  cargo "${run[@]}" --no-fail-fast "${more[@]}" 2>&1 | tee "$log" |
    grep --line-buffered -E '^ +(Starting|Running|PASS|SLOW|LEAK|FAIL|SIGNAL|TIMEOUT|Summary)|^(warning|error|test |test result)' || failed=1
  [ "$failed" = 0 ] || cat "$log"
  grep -E '^ *SKIPPED' "$log" | sort
  return "$failed"
}
# Also in the configuration of a release: fwd-app without test features, and lpm-bench without DPDK, for a host with a GPU alone.
step_clippy() {
  cargo clippy --workspace --all-targets --features "$FEATURES" -- -D warnings && cargo clippy -p fwd-app -p lpm-bench -- -D warnings
}
step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --features "$FEATURES"; }
step_doctest() { cargo test --workspace --features "$FEATURES" --no-fail-fast --doc; }
step_isa() { scripts/isa-scan.sh "$FWD_APP"; }
# Two at a time, the longest first: they mostly wait for timers of daemons. Scripts that measure, use every CPU or count fragments run alone.
ALONE=(scale_out soak router)
LONGEST=bgp
step_smoke() {
  local script name together=() failed=0
  for script in scripts/smoke/[!_]*.sh; do
    name=$(basename "$script" .sh)
    if [[ " ${ALONE[*]} " = *" $name "* ]]; then
      rooted scripts/smoke/_timed.sh "$script" || failed=1
    elif [ "$name" = "$LONGEST" ]; then
      together=("$script" "${together[@]}")
    else
      together+=("$script")
    fi
  done
  printf '%s\n' "${together[@]}" | rooted xargs -P 2 -n 1 scripts/smoke/_timed.sh || failed=1
  return "$failed"
}
# The commands of README.md and docs, and the tables of results in them. docs/install.md needs NICs: the step `server` runs it.
step_docs() { (need_packages frr) && scripts/against.sh --table --check && rooted scripts/docs_check.py "$FWD_APP"; }
# Compressing a debug build as well as a release would take most of the time.
step_package() {
  DPKG_DEB_COMPRESSOR_TYPE=gzip DPKG_DEB_COMPRESSOR_LEVEL=1 scripts/deb.sh --lint >"$STATE/deb" && cat "$STATE/deb"
}
step_server() {
  local FWD_DEB
  FWD_DEB=$(cat "$STATE/deb")
  rooted scripts/server.sh --docs
}

chosen=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    --list) printf '%s\n' "${STEPS[@]}" && exit 0 ;;
    *)
      if [[ " ${STEPS[*]} " != *" $argument "* ]]; then
        note "test.sh: no step $argument: there are ${STEPS[*]}" >&2
        exit 2
      fi
      chosen+=("$argument")
      ;;
  esac
done
live=
[ ${#chosen[@]} != 1 ] || live=yes
[ ${#chosen[@]} != 0 ] || chosen=("${STEPS[@]}")
for ((at = 0; at < ${#chosen[@]}; at++)); do
  for step in ${NEEDS[${chosen[at]}]:-}; do
    [[ " ${chosen[*]} " = *" $step "* ]] || chosen+=("$step")
  done
done

cd "$TOP" || exit 1
need_all iproute2 xz-utils bzip2
if [ -z "${FWD_REQUIRE+set}" ]; then
  FWD_REQUIRE=dpdk,gpu
  grep -qw avx512f /proc/cpuinfo && FWD_REQUIRE=$FWD_REQUIRE,avx512f
fi
export FWD_REQUIRE
# A clean checkout is built once, so data for rebuilds and debuggers would only take time.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false
FEATURES=$(features) TARGET=$(target_dir)
STATE=$TARGET/test
export FWD_APP=$TARGET/debug/fwd-app
rm -rf "$STATE" && mkdir -p "$STATE"
note "FWD_DATA=${FWD_DATA:-} FWD_REQUIRE=$FWD_REQUIRE LIBCLANG_PATH=${LIBCLANG_PATH:-}"
note "$(cargo --version), DPDK $(pkg-config --modversion libdpdk), $(nproc) CPUs, $(free_hugepage_mb) MB of free hugepages"

# By step: process and start second, then result and end second.
declare -A process=() began=() result=() ended=()
run_step() {
  local log=$STATE/$1.log
  TIMEFORMAT='%U %S'
  if [ -n "$live" ]; then exec > >(tee "$log"); else exec >"$log"; fi
  exec 3>&1
  [[ " ${COMPILERS[*]} " != *" $1 "* ]] || renice -n 10 $BASHPID >/dev/null
  [[ " ${FILLERS[*]} " != *" $1 "* || " ${chosen[*]} " != *" test "* ]] || chrt --idle --pid 0 $BASHPID
  { time "step_$1" 2>&3; } 2>"$STATE/$1.cpu" </dev/null
}
may_start() {
  local other
  [ -z "${began[$1]:-}${result[$1]:-}" ] || return 1
  for other in ${NEEDS[$1]:-} ${AFTER[$1]:-}; do
    [[ " ${chosen[*]} " != *" $other "* ]] || [ -n "${result[$other]:-}" ] || return 1
  done
  for other in ${NEEDS[$1]:-}; do
    if [ "${result[$other]}" != passed ]; then
      result[$1]='not run' ended[$1]=$SECONDS began[$1]=$SECONDS
      note "$1: not run, since $other has failed"
      return 1
    fi
  done
}
start_ready() {
  local step
  for step in "${chosen[@]}"; do
    if may_start "$step"; then
      began[$step]=$SECONDS
      run_step "$step" &
      process[$step]=$!
    fi
  done
}
cpu_s() { awk '{ printf "%.0f", $1 + $2 }' "$STATE/$1.cpu" 2>/dev/null; }
skipped_in() { grep -cE '^[a-z_ ]*:? *SKIPPED' "$STATE/$1.log" 2>/dev/null || true; }
end_step() {
  local step=$1 code=$2
  result[$step]=passed ended[$step]=$SECONDS
  [ "$code" = 0 ] || result[$step]=FAILED
  if [ -z "$live" ]; then
    say "$step: ${result[$step]}, $((SECONDS - began[$step])) s"
    cat "$STATE/$step.log"
  fi
}

# Each step is a process group with the default signals, and ends with this script.
set -m
end_all() {
  local group
  for group in "${process[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done
}
trap 'end_all; exit 130' INT TERM HUP
while start_ready && [ ${#process[@]} -gt 0 ]; do
  code=0
  wait -n -p finished "${process[@]}" || code=$?
  for step in "${!process[@]}"; do
    if [ "${process[$step]}" = "$finished" ]; then
      unset "process[$step]"
      end_step "$step" "$code"
    fi
  done
done

# waited_for STEP : the chain of steps that delayed this one, the last first.
waited_for() {
  local step=$1 other last=
  printf '%s %s s' "$step" $((ended[$step] - began[$step]))
  for other in ${NEEDS[$step]:-} ${AFTER[$step]:-}; do
    [ -n "${ended[$other]:-}" ] || continue
    [ -n "$last" ] && [ "${ended[$other]}" -le "${ended[$last]}" ] || last=$other
  done
  [ -z "$last" ] || { printf ', after ' && waited_for "$last"; }
}
say "summary, $SECONDS s in all"
failed=() skips=0 last=${chosen[0]}
for step in "${STEPS[@]}"; do
  [ -n "${result[$step]:-}" ] || continue
  count=$(skipped_in "$step")
  skips=$((skips + ${count:-0}))
  [ "${result[$step]}" = passed ] || failed+=("$step")
  [ "${ended[$step]}" -lt "${ended[$last]}" ] || last=$step
  printf '%-10s %-7s %5d s  %5s s of CPU%s\n' "$step" "${result[$step]}" $((ended[$step] - began[$step])) "$(cpu_s "$step")" \
    "$([ "${count:-0}" = 0 ] || printf ', %d skipped' "$count")"
done
note "the last to end: $(waited_for "$last")"
if [ ${#failed[@]} -gt 0 ]; then
  note "FAILED: ${failed[*]}$([ "$skips" = 0 ] || printf ', %d skipped' "$skips")"
  exit 1
fi
note "all steps passed$([ "$skips" = 0 ] || printf ', %d skipped' "$skips")"
