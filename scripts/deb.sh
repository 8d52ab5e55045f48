#!/usr/bin/env bash
# Builds the Debian package fwd-app for this host's release, and prints its path: the program, its service, the unit that binds NICs,
# user, udev rule, manual pages, completions, examples and documentation (docs/service.md).
#
#   scripts/deb.sh                  into target/package
#   scripts/deb.sh --out FOLDER     into another folder
#   scripts/deb.sh --lint           and checks it with lintian, systemd-analyze verify and systemd-analyze security, and the examples
#                                   with FRR and bird
#
# FWD_APP names the program; unset, it is built. The version is Cargo.toml's with the time and the number of the commit, so that a newer
# commit is an upgrade; FWD_COMMIT replaces the number without git. Installs packages that it needs. Exit 0: done. Exit 1: failed. Exit 2: bad usage.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Drivers of NICs, any of which satisfies the dependency; the first one brings all of Debian's.
PMDS=(librte-meta-net net-ixgbe net-i40e net-ice net-iavf net-igc net-e1000- net-mlx5- net-bnxt net-ena net-virtio net-vmxnet3- net-af-packet
  net-memif net-null)
# The highest exposure, of 100, that systemd-analyze calls OK.
EXPOSURE_MAX=30

out="" lint=no
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --out) out=${2:?--out FOLDER} && shift 2 ;;
    --lint) lint=yes && shift ;;
    *) printf 'deb.sh: unknown argument %s; see --help\n' "$1" >&2 && exit 2 ;;
  esac
done

pmds() {
  local eal abi name any=""
  eal=$(ldd "$1" | grep -o 'librte_eal\.so\.[0-9]*') || die "$1 is not linked to DPDK's shared libraries"
  abi=${eal##*.}
  for name in "${PMDS[@]}"; do
    # The ABI follows the name, after a hyphen where the name ends in a digit.
    case "$name" in net-*) name=librte-$name$abi ;; esac
    any+="${any:+ | }$name"
  done
  printf 'librte-bus-pci%s, librte-bus-vdev%s, librte-mempool-ring%s, %s' "$abi" "$abi" "$abi" "$any"
}

version() {
  local crate time
  crate=$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml" | head -n 1)
  time=$(git -C "$TOP" log -1 --format=%cd --date=format:%Y%m%d%H%M 2>/dev/null || date -u +%Y%m%d%H%M)
  printf '%s+%s%s' "$crate" "$time" "${FWD_COMMIT:+.$FWD_COMMIT}"
}

fill() {
  local files=$1/files doc=$1/files/usr/share/doc/fwd-app share=$1/files/usr/share package=$TOP/scripts/package shell
  install -D -m 755 "$FWD_APP" "$files/usr/bin/fwd-app"
  install -D -m 755 "$package/bind" "$files/usr/lib/fwd-app/bind"
  install -d -m 755 "$files/etc/fwd-app" "$share/man/man8" "$doc"
  "$FWD_APP" man "$share/man/man8"
  while read -r shell path; do
    mkdir -p "$(dirname "$share/$path")"
    "$FWD_APP" completions "$shell" >"$share/$path"
  done <<'END'
bash bash-completion/completions/fwd-app
zsh zsh/vendor-completions/_fwd-app
fish fish/vendor_completions.d/fwd-app.fish
END
  cp -r "$package/examples" "$doc/examples"
  cp -r "$TOP/scripts/monitoring" "$doc/examples/monitoring"
  install -m 644 "$TOP"/docs/*.md "$doc/"
  sed 's,(docs/,(,g' "$TOP/CHANGELOG.md" >"$doc/CHANGELOG.md"
  install -m 644 "$TOP"/docs/*.toml "$doc/examples/"
  (cd "$TOP" && cargo tree --locked -p fwd-app -e normal --prefix none --format '{p}  {l}') |
    sed -E 's, \(\*\)$,,; s, \(/[^)]*\),,' | sort -u >"$doc/libraries.txt"
}

describe() {
  local folder=$1
  cp -r "$TOP/scripts/package/debian" "$folder/debian"
  printf 'PMDS = %s\n' "$(pmds "$FWD_APP")" >"$folder/package.mk"
  sed '1,/^Copyright/d; s/^$/./; s/^/ /' "$TOP/LICENSE-MIT" | sed '1d' >>"$folder/debian/copyright"
  cat >"$folder/debian/changelog" <<END
fwd-app ($VERSION) $(. /etc/os-release && printf '%s' "$VERSION_CODENAME"); urgency=medium

  * See CHANGELOG.md.

 -- fwd-app developers <fwd-app@example.org>  $(git -C "$TOP" log -1 --format=%cD 2>/dev/null || date -R)
END
}

units_of() { dirname "$(find "$1" -name fwd-app.service -path '*/systemd/system/*')"; }

# verify UNIT [FOLDER] : systemd accepts the unit; FOLDER has further units. As root, since without systemd it makes folders below /run.
verify() { as_root env ${2:+SYSTEMD_UNIT_PATH="$2:"} systemd-analyze verify --man=no "$1"; }

check_package() {
  local root=$2/unpacked units unit bad=0
  lintian --fail-on error,warning --allow-root "$1" || bad=1
  dpkg-deb -x "$1" "$root"
  units=$(units_of "$root")
  # The program is not installed here, so /bin/true replaces it.
  sed -E -i 's#^(Exec[A-Za-z]*=)/usr/(bin|lib)/fwd-app(/bind)?( |$)#\1/bin/true\4#' "$units"/*.service
  for unit in fwd-app.service fwd-app-bind@.service; do
    verify "$units/$unit" || bad=1
  done
  systemd-analyze security --offline=yes --threshold="$EXPOSURE_MAX" --no-pager "$units/fwd-app.service" >"$2/security" 2>&1 ||
    { cat "$2/security" && bad=1; }
  tail -n 1 "$2/security"
  return "$bad"
}

check_examples() {
  local examples=$TOP/scripts/package/examples units=$1/units daemon bad=0
  mkdir -p "$units"
  as_root vtysh -C -f "$examples/frr/frr.conf" || bad=1
  bash -n "$examples/frr/daemons" || bad=1
  bird -p -c "$examples/bird/bird.conf" || bad=1
  cp "$examples/netns/routing-netns.service" "$units/"
  cp "$(units_of "$1/unpacked")/fwd-app.service" "$units/"
  for daemon in fwd-app frr bird; do
    [ "$daemon" = fwd-app ] || cp "/lib/systemd/system/$daemon.service" "$units/" 2>/dev/null || continue
    mkdir "$units/$daemon.service.d"
    cp "$examples/netns/netns.conf" "$units/$daemon.service.d/"
    [ "$daemon" = fwd-app ] || cp "$examples/$daemon/fwd-app.conf" "$units/$daemon.service.d/"
    verify "$units/$daemon.service" "$units" || bad=1
  done
  return "$bad"
}

cd "$TOP"
[ -n "${FWD_COMMIT:-}" ] || FWD_COMMIT=$(git rev-parse --short=12 HEAD 2>/dev/null || true)
export FWD_COMMIT
tools=(build-essential debhelper)
[ "$lint" = no ] || tools+=(lintian systemd frr bird2)
need_all "${tools[@]}" >&2
if [ -z "${FWD_APP:-}" ]; then
  cargo build --release -p fwd-app >&2 || die "the build failed"
  FWD_APP=$(target_dir)/release/fwd-app
fi
[ -x "$FWD_APP" ] || die "no program $FWD_APP"
out=${out:-$(target_dir)/package}
mkdir -p "$out"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
VERSION=$(version)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
umask 022
mkdir "$WORK/fwd-app"
fill "$WORK/fwd-app"
describe "$WORK/fwd-app"
(cd "$WORK/fwd-app" && dpkg-buildpackage -b -us -uc) >"$WORK/log" 2>&1 || { tail -n 40 "$WORK/log" >&2 && die "dpkg-buildpackage failed"; }
package=$out/fwd-app_${VERSION}_amd64.deb
mv "$WORK"/fwd-app_*.deb "$package"
mv "$WORK"/fwd-app-dbgsym_*.deb "$out"
[ "$lint" = no ] || { check_package "$package" "$WORK" && check_examples "$WORK"; } >&2 || die "$package does not pass the checks above"
printf '%s\n' "$package"
