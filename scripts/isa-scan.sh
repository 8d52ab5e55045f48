#!/usr/bin/env bash
# Proves that the AVX-512F kernels use nothing that Knights Landing lacks.
#
#   scripts/isa-scan.sh                 build the release binary of fwd-app and scan it
#   scripts/isa-scan.sh BINARY..        scan these instead
#   scripts/isa-scan.sh --self-test     only try the scanner on known-good and known-bad snippets
#   scripts/isa-scan.sh --verbose ..    list the functions too
#
# The self-test runs before every scan. Exit 0: every instruction is allowed. Exit 1: one is not, or there is no kernel to scan.
# scripts/isa/scan.py has the method, scripts/isa/knights-landing.txt the instructions of each set with their sources.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

binaries=() options=() build=yes
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    --self-test) build=no ;;
    --verbose) options+=(--verbose) ;;
    -*) usage >&2 && exit 2 ;;
    *) binaries+=("$argument") ;;
  esac
done

for tool in objdump nm gcc python3; do has "$tool" || need_packages; done
if [ "$build" = yes ] && [ ${#binaries[@]} = 0 ]; then
  need_all
  (cd "$TOP" && cargo build --release -p fwd-app)
  binaries=("$(target_dir)/release/fwd-app")
fi
exec python3 "$TOP/scripts/isa/scan.py" --self-test "${options[@]}" "${binaries[@]}"
