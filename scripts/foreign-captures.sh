#!/usr/bin/env bash
# Replays the captures of the test suites of tcpdump and Wireshark, most of which are meant to break parsers.
#
#   scripts/foreign-captures.sh [--stream] [--app FILE] [--json FILE] [FOLDER..]
#
#   --stream      with `--stream always`: traces are read while they are replayed
#   --app FILE    the program (default: target/release/fwd-app, built if missing)
#   --json FILE   the result of each capture (default target/foreign-captures/result.json)
#   FOLDER..      other folders of captures instead
#
# The captures come from the distribution's source packages, downloaded to target/foreign-captures; they are not part of this repository.
# Each is replayed with `replay --verify`, over routes for all addresses, and the sent packets are compared with a second forwarder, in
# Python (not with --stream). A capture passes if its packets are forwarded or dropped as both say, or if it is refused with a reason.
# Exit 1: a mismatch, a panic or a run that does not end. Without the network it prints SKIPPED. Takes some minutes, no privileges.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

STREAM='' APP='' JSON='' FOLDERS=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --stream) STREAM=--stream && shift && continue ;;
    --app | --json) [ $# -ge 2 ] || die "$1 needs a value; see --help" ;;&
    --app) APP=$2 ;;
    --json) JSON=$2 ;;
    --*) die "unknown argument $1; see --help" ;;
    *) FOLDERS+=("$1") && shift && continue ;;
  esac
  shift 2
done

FOLDER=$(target_dir)/foreign-captures
mkdir -p "$FOLDER"
if [ ${#FOLDERS[@]} = 0 ]; then
  has apt-get && has dpkg-source || die "needs apt-get and dpkg-dev for the captures of tcpdump and Wireshark; or name folders of your own"
  if ! compgen -G "$FOLDER/wireshark-*/" >/dev/null || ! compgen -G "$FOLDER/tcpdump-*/" >/dev/null; then
    say "downloading the sources of tcpdump and Wireshark"
    if ! apt_source "$FOLDER" tcpdump wireshark; then
      note "SKIPPED: their source packages cannot be downloaded here"
      exit 0
    fi
  fi
  FOLDERS=("$FOLDER"/tcpdump-*/tests "$FOLDER"/wireshark-*/test/captures)
fi
if [ -z "$APP" ]; then
  APP=$(target_dir)/release/fwd-app
  [ -x "$APP" ] || (cd "$TOP" && cargo build --release -p fwd-app)
fi
exec python3 "$TOP/scripts/foreign_captures.py" ${STREAM:+"$STREAM"} --app "$APP" --json "${JSON:-$FOLDER/result.json}" "${FOLDERS[@]}"
