#!/usr/bin/env bash
# Everything that has to hold before a change lands: installs what is missing, then runs every check and prints a summary.
#
#   scripts/test.sh                run everything
#   scripts/test.sh STEP..         run these steps only
#   scripts/test.sh --list         name the steps
#
# On a fresh Debian 12 or Ubuntu 24.04, as root or with sudo. Hugepages are not needed. FWD_DATA names a folder of real tables, if
# there is one; tests that want it print SKIPPED without. FWD_REQUIRE (a list of avx512f, dpdk, gpu) makes tests fail that would
# skip; unset it is dpdk, gpu (the mock driver stands in, or with LPM_GPU=real the host's), and avx512f where the CPU has it. clang-16
# compares the PTX byte for byte, where it is installed. FWD_MODELS=full has the models of what threads do to each other (crate `models`) look
# further. With cargo-nextest installed the tests run side by side. Exit 0: all steps passed. Exit 1: one did not. Exit 2: bad usage.

set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# --feature list for every crate of the workspace that has `testing` or `dpdk`.
features() {
  cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for feature in sorted({"testing", "dpdk"} & package["features"].keys()):
        print(package["name"] + "/" + feature)' | paste -sd, -
}

step_fmt() { cargo fmt --all --check; }
step_captures() { python3 scripts/make_captures.py --self-test && python3 scripts/make_captures.py --check; }
step_shell() {
  local file bad=0
  for file in .ci/run scripts/*.sh scripts/{smoke,server,against}/*.sh; do
    bash -n "$file" || bad=1
  done
  if has shellcheck; then shellcheck -x -P scripts:scripts/smoke -S warning scripts/*.sh scripts/{smoke,server,against}/*.sh .ci/run || bad=1; fi
  return "$bad"
}
# lpm-bench is also built without DPDK: by itself, for a host with a GPU and nothing else.
step_clippy() {
  cargo clippy --workspace --all-targets --features "$(features)" -- -D warnings && cargo clippy -p lpm-bench -- -D warnings
}
# cargo-nextest runs tests of several binaries side by side; without it they run binary by binary. It keeps what tests print to itself:
# the log has it, and what was skipped is told at the end.
step_test() {
  local log failed=0
  if ! has cargo-nextest; then
    cargo test --workspace --features "$(features)" --no-fail-fast
    return
  fi
  log=$(target_dir)/tests.log
  cargo nextest run --workspace --features "$(features)" --no-fail-fast --success-output immediate 2>&1 | tee "$log" |
    grep --line-buffered -E '^ +(Compiling|Starting|PASS|SLOW|LEAK|FAIL|SIGNAL|TIMEOUT|Summary)|^(warning|error)' || failed=1
  [ "$failed" = 0 ] || cat "$log"
  grep -E '^ *SKIPPED' "$log" | sort | uniq -c
  cargo test --workspace --features "$(features)" --no-fail-fast --doc || failed=1
  return "$failed"
}
step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --features "$(features)"; }
step_ptx() { scripts/ptx.sh --check && scripts/ptx.sh --ptxas; }
step_isa() { scripts/isa-scan.sh; }
step_deny() {
  if has cargo-deny; then
    cargo deny check bans licenses sources
  else
    note "SKIPPED: cargo-deny is not installed (cargo install cargo-deny)"
  fi
}
# Two scripts at a time, the longest first: they wait for timers of routing daemons more than they work. Those that measure, use every
# CPU or count every fragment of a ping are alone.
ALONE=(scale_out soak router)
LONGEST=bgp
step_smoke() {
  local script name together=() failed=0
  FWD_APP=$(target_dir)/release/fwd-app
  export FWD_APP
  cargo build --release -p fwd-app || return 1
  for script in scripts/smoke/[!_]*.sh; do
    name=$(basename "$script" .sh)
    if [[ " ${ALONE[*]} " = *" $name "* ]]; then
      scripts/smoke/_timed.sh "$script" || failed=1
    elif [ "$name" = "$LONGEST" ]; then
      together=("$script" "${together[@]}")
    else
      together+=("$script")
    fi
  done
  printf '%s\n' "${together[@]}" | xargs -P 2 -n 1 scripts/smoke/_timed.sh || failed=1
  return "$failed"
}

# The commands of README.md and docs, and the tables of results in them. Those of docs/install.md want NICs: the step `server` runs them.
step_docs() {
  scripts/against.sh --table --check || return 1
  cargo build --release -p fwd-app || return 1
  (need_packages frr) || note "without FRR some of them fail"
  scripts/docs_check.py "$(target_dir)/release/fwd-app"
}

# The Debian package, which `server` then tries in its guest.
step_package() {
  if ! has dpkg-deb; then
    note "SKIPPED: no Debian, no package"
    return
  fi
  cargo build --release -p fwd-app || return 1
  FWD_DEB=$(FWD_APP=$(target_dir)/release/fwd-app scripts/deb.sh --lint) || return 1
  export FWD_DEB
}

# Real drivers, in a guest under emulation; prints SKIPPED where there can be none.
step_server() {
  cargo build --release -p fwd-app || return 1
  FWD_APP=$(target_dir)/release/fwd-app
  export FWD_APP
  scripts/server.sh && scripts/server.sh docs
}

# Cheap steps first; `isa` builds the release binary that `smoke`, `docs`, `package` and `server` use.
STEPS=(fmt shell captures ptx clippy test doc isa smoke docs deny package server)

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
[ ${#chosen[@]} = 0 ] && chosen=("${STEPS[@]}")

cd "$TOP" || exit 1
# The last three are for the smoke scripts: network namespaces, compressed route files.
need_all iproute2 xz-utils bzip2
if [ -z "${FWD_REQUIRE+set}" ]; then
  FWD_REQUIRE=dpdk,gpu
  grep -qw avx512f /proc/cpuinfo && FWD_REQUIRE=$FWD_REQUIRE,avx512f
fi
export FWD_REQUIRE
# What is built once needs no notes for building it again.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0
note "FWD_DATA=${FWD_DATA:-} FWD_REQUIRE=$FWD_REQUIRE LIBCLANG_PATH=${LIBCLANG_PATH:-}"
note "$(cargo --version), DPDK $(pkg-config --modversion libdpdk), $(nproc) CPUs, $(free_hugepage_mb) MB of free hugepages"

summary="" failed=0
for step in "${chosen[@]}"; do
  say "$step"
  before=$SECONDS
  if "step_$step"; then result=passed; else result=FAILED failed=1; fi
  summary+=$(printf '%-10s %-7s %5d s' "$step" "$result" $((SECONDS - before)))$'\n'
done
say "summary, $SECONDS s in all"
printf '%s' "$summary"
exit "$failed"
