#!/usr/bin/env bash
# Tests of lib.sh: which libclang it installs, by the package lists of five releases. lib_test/SUITE.packages has the libclang packages of
# a release, with the fields for dependency resolution.
#
#   scripts/lib_test.sh
#
# Needs apt, but neither network nor privileges. Exit 0: all tests passed. Exit 1: one failed.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

has apt-get || { note "SKIPPED: lib_test.sh: no apt on this machine" && exit 0; }
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

knows() {
  local place=$WORK/$RANDOM
  mkdir -p "$place"/{archive,lists/partial,cache}
  cp "$1" "$place/archive/Packages"
  : >"$place/status"
  printf 'deb [trusted=yes] file:%s/archive ./\n' "$place" >"$place/sources.list"
  cat >"$place/apt.conf" <<END
Dir::Etc::SourceList "$place/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$place";
Dir::State::Status "$place/status";
Dir::Cache "$place/cache";
APT::Architecture "amd64";
APT::Sandbox::User "";
END
  export APT_CONFIG=$place/apt.conf
  apt-get -qq update
}

failed=0
libclang_of() {
  local found
  knows "$TOP/scripts/lib_test/$1.packages"
  found=$(libclang_packages | paste -sd' ') || true
  if [ "$found" = "$2" ]; then
    note "ok: libclang on $1: $found"
  else
    note "FAILED: libclang on $1: '$found', wanted '$2'"
    failed=1
  fi
}
libclang_of bookworm "libclang1-14 libclang-common-14-dev"
libclang_of trixie "libclang1-19 libclang-common-19-dev"
libclang_of forky "libclang1-21 libclang-common-21-dev"
libclang_of noble "libclang1-18 libclang-common-18-dev"
libclang_of resolute "libclang1-21 libclang-common-21-dev"

knows /dev/null
if libclang_packages; then
  note "FAILED: libclang without package lists: an answer"
  failed=1
fi
exit "$failed"
