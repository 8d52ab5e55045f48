#!/usr/bin/env bash
# Forwards a mix under verification for a long time while routes change, and injects faults: a device that stalls or is lost and comes
# back, a full TX queue, too few mbufs, threads that lose their CPU, failed allocations, files that change while they are read, signals.
# For every process it checks that each packet left once, no answer was wrong, memory does not grow, and it ends in time.
#
#   scripts/soak.sh [MINUTES]                  all rounds in turn [5], with one long process with full tables; a new seed every 5 minutes
#   scripts/soak.sh --seed N --round NAME      one round again; --round may be given several times
#   scripts/soak.sh --list                     name the rounds
#
#   --seconds S   approximate time of a round of --round [12 to 60, by its kind]
#   --work DIR    folder of logs [TMPDIR, else /tmp]; logs of passed rounds are removed without --keep
#
# FWD_APP names the program; unset, it is built, with the mock driver that replaces a GPU. FWD_DATA names a folder of real tables and
# updates for the long process; unset, they are generated. On a busy host: nice -n 19 scripts/soak.sh 60.
# Exit 0: all passed. Exit 1: one failed; prints its logs and the command to repeat it. Exit 2: bad usage.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
  esac
done
has python3 || die "needs python3"
cd "$TOP"
if [ -z "${FWD_APP:-}" ]; then
  need_all
  cargo build --release -p fwd-app -p mockcuda >&2 || die "the build failed"
  FWD_APP=$(target_dir)/release/fwd-app
fi
[ -x "$FWD_APP" ] || die "no program $FWD_APP"
FWD_APP=$(realpath "$FWD_APP")
# The build of the program or of its tests has put the mock driver next to the program.
mock=()
for found in "$(dirname "$FWD_APP")"/libmockcuda.so "$(dirname "$FWD_APP")"/deps/libmockcuda.so "$(dirname "$FWD_APP")"/../debug/deps/libmockcuda.so; do
  if [ -e "$found" ]; then
    mock=(--mock "$found")
    break
  fi
done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=scripts exec python3 -m soak --app "$FWD_APP" "${mock[@]}" "$@"
