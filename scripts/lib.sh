# shellcheck shell=bash
# Sourced by the scripts in this folder: messages, and installation of packages for builds and tests, as root or with sudo.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }
note() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# skipped WHY : reports a check that is left out. With CI set it fails: there only a check that a machine cannot run may be skipped.
skipped() {
  note "SKIPPED: $*"
  [ -z "${CI:-}" ]
}

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif has sudo; then
    sudo "$@"
  else
    die "needs root or sudo to run: $*"
  fi
}

apt_install() {
  local log
  log=$(mktemp)
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# apt_source FOLDER PACKAGE..: the distribution's sources, in FOLDER; `--download-only` before the names leaves them packed.
apt_source() {
  local folder apt list
  folder=$(cd "$1" && pwd) apt=$folder/apt
  shift
  mkdir -p "$apt/lists" "$apt/sources.d"
  { sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null || true; } >"$apt/sources.list"
  for list in /etc/apt/sources.list.d/*.sources; do
    if grep -qs '^Types: *deb\( \|$\)' "$list"; then
      sed 's/^Types:.*/Types: deb-src/' "$list" >"$apt/sources.d/$(basename "$list")"
    fi
  done
  local options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=$apt/sources.d"
    -o "Dir::State::Lists=$apt/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update && (cd "$folder" && apt-get "${options[@]}" source "$@" >/dev/null)
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# bindgen loads the first libclang that it finds, unless LIBCLANG_PATH is set.
find_libclang() {
  local found
  [ -n "${LIBCLANG_PATH:-}" ] && return 0
  for found in $(printf '%s\n' /usr/lib/llvm-*/lib/libclang*.so* | sort -V -r); do
    # The resource headers (stddef.h and others) must be of the same version.
    if [ -e "$found" ] && compgen -G "$(dirname "$found")/clang/*/include/stddef.h" >/dev/null; then
      LIBCLANG_PATH=$(dirname "$found")
      export LIBCLANG_PATH
      return 0
    fi
  done
  return 1
}

# libclang_packages : libclang and its headers of one version. Only apt knows the names: libclang1-14, libclang1-17t64.
libclang_packages() {
  local development
  development=$(apt-cache depends libclang-dev 2>/dev/null | sed -nE 's/^ *Depends: (libclang-[0-9]+-dev)$/\1/p')
  [ -n "$development" ] || return 1
  apt-cache depends "$development" | sed -nE 's/^ *Depends: (libclang1-[0-9]+(t64)?|libclang-common-[0-9]+-dev)$/\1/p'
}

# missing_packages NAME.. : the packages that are not installed, of these and of the common ones, one a line. procps has `kill` for tests.
missing_packages() {
  local package
  for package in "$@" gcc libc6-dev binutils pkg-config python3 ca-certificates procps libdpdk-dev dpdk-dev; do
    installed "$package" || printf '%s\n' "$package"
  done
}

need_packages() {
  local missing libclang='' service
  if ! has apt-get; then
    pkg-config --exists libdpdk && has gcc && has python3 && has objdump && find_libclang && return 0
    die "not a Debian or Ubuntu: install DPDK 22.11 or newer with headers, libclang, pkg-config, gcc, binutils and python3 yourself"
  fi
  missing=$(missing_packages "$@")
  find_libclang || libclang=missing
  if [ -n "$missing$libclang" ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq update ||
      note "apt-get update failed; trying with the existing lists"
    if [ -n "$libclang" ]; then
      libclang=$(libclang_packages) || die "apt knows no package libclang-dev: install libclang and set LIBCLANG_PATH"
    fi
    missing=$(printf '%s ' $missing $libclang)
    say "installing $missing"
    # shellcheck disable=SC2086 # a list of names
    apt_install $missing || die "apt-get could not install: $missing"
    # Labs and tests start their own daemons, so stop the services of the packages.
    for service in frr bird prometheus; do
      [[ " $missing" != *" $service"* ]] || [ ! -d /run/systemd/system ] || as_root systemctl disable -q --now "$service" || true
    done
  fi
  find_libclang || die "libclang is installed but not found below /usr/lib/llvm-*/lib: set LIBCLANG_PATH"
  pkg-config --exists libdpdk || die "pkg-config does not know libdpdk: is PKG_CONFIG_PATH set to another place?"
}

need_rust() {
  local channel
  if ! has cargo && [ -f "$HOME/.cargo/env" ]; then
    # shellcheck disable=SC1091
    . "$HOME/.cargo/env"
  fi
  if ! has cargo && ! has rustup; then
    say "installing rustup"
    # Debian has the package from 13 on, Ubuntu from 24.04 on.
    if ! apt_install rustup 2>/dev/null; then
      has curl || apt_install curl || die "could not install curl"
      curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain none --no-modify-path ||
        die "could not install rustup: see https://rustup.rs"
      # shellcheck disable=SC1091
      . "$HOME/.cargo/env"
    fi
  fi
  channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$TOP/rust-toolchain.toml")
  if ! (cd "$TOP" && cargo clippy --version && cargo fmt --version) >/dev/null 2>&1 && has rustup; then
    say "installing Rust $channel"
    rustup toolchain install "$channel" --profile minimal --component clippy --component rustfmt --no-self-update ||
      die "rustup could not install Rust $channel"
  fi
  (cd "$TOP" && cargo --version >/dev/null 2>&1) || die "cargo does not run in $TOP: is Rust $channel installed?"
}

need_all() {
  need_packages "$@"
  need_rust
}

target_dir() {
  (cd "$TOP" && cargo metadata --no-deps --format-version 1) |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
}

free_hugepage_mb() {
  local total=0 folder size free
  for folder in /sys/kernel/mm/hugepages/hugepages-*kB; do
    [ -r "$folder/free_hugepages" ] || continue
    size=${folder##*-}
    read -r free <"$folder/free_hugepages"
    total=$((total + free * ${size%kB} / 1024))
  done
  printf '%s' "$total"
}
