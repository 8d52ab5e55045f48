#!/usr/bin/env bash
# Runs README's commands on fresh machines: a minimal root of each release with a clean clone of the last commit, in which demo.sh, lab.sh
# and test.sh run once as root and once as a user with sudo. The root takes only the Rust toolchain from this host.
#
#   scripts/fresh.sh SUITE..             bookworm, trixie, forky (Debian), noble, resolute (Ubuntu)
#   scripts/fresh.sh --as root SUITE..   as root alone, or as `user`
#   scripts/fresh.sh --steps LIST SUITE..  some of demo,lab,frr,test; frr is `lab.sh --frr`
#   scripts/fresh.sh --shell SUITE       a shell in such a root, as root or --as user
#
#   --aptopt OPTION  a setting of apt in the roots, such as Acquire::Check-Valid-Until "false" for a stale mirror
#   --work DIR   folder of roots and logs [target/fresh]; a root takes 6 GB until its last step
#
# Needs root, mmdebstrap (installed if missing) and package archives. Prints each step's result, and a table at the end;
# DIR/SUITE-USER-STEP.log has the output. Two suites take some two hours. Exit 0: all steps passed. Exit 1: one failed. Exit 2: bad usage.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STEPS=(demo lab frr test)
users=(root user) steps=("${STEPS[@]}") suites=() options=() work='' shell=''
bad_usage() { note "fresh.sh: $*; see --help" >&2 && exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --as)
      [[ "${2:-}" =~ ^(root|user)$ ]] || bad_usage "--as wants root or user"
      users=("$2") && shift
      ;;
    --steps)
      IFS=, read -ra steps <<<"${2:-}" && shift
      for step in "${steps[@]}"; do [[ " ${STEPS[*]} " = *" $step "* ]] || bad_usage "no step '$step': there are ${STEPS[*]}"; done
      ;;
    --aptopt) options+=("--aptopt=${2:?}") && shift ;;
    --work) work=${2:?} && shift ;;
    --shell) shell=yes ;;
    bookworm | trixie | forky | noble | resolute) suites+=("$1") ;;
    *) bad_usage "no argument $1" ;;
  esac
  shift
done
[ ${#suites[@]} -gt 0 ] || bad_usage "no suite"
[ "$(id -u)" = 0 ] || die "needs root, to make the roots"
installed mmdebstrap || { as_root apt-get -qq update && apt_install mmdebstrap; } || die "could not install mmdebstrap"

cd "$TOP"
work=${work:-$(target_dir)/fresh}
mkdir -p "$work"
work=$(cd "$work" && pwd)
has rustc || die "needs the Rust toolchain, which the roots share"
TOOLCHAIN=$(rustc --print sysroot)

make_base() {
  local suite=$1 archive=http://deb.debian.org/debian keyring=() components=main
  if [[ $suite = noble || $suite = resolute ]]; then
    archive=http://archive.ubuntu.com/ubuntu components=main,universe
    installed ubuntu-archive-keyring || apt_install ubuntu-archive-keyring || apt_install ubuntu-keyring || die "no keys of Ubuntu's archive"
    keyring=(--keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg)
  fi
  [ ! -e "$work/$suite.tar" ] || return 0
  mmdebstrap --quiet --variant=minbase --include=sudo,passwd --components="$components" "${keyring[@]}" "${options[@]}" "$suite" "$work/$suite.part.tar" "$archive"
  mv "$work/$suite.part.tar" "$work/$suite.tar"
}

make_root() {
  local suite=$1 user=$2 root=$work/root home=/root
  remove_root
  mkdir "$root"
  tar -C "$root" -xpf "$work/$suite.tar"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
  mkdir -p "$root/usr/local/share/ca-certificates" "$root/opt/rust"
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  if [ "$user" = user ]; then
    home=/home/user
    chroot "$root" useradd -m -s /bin/bash user
    printf 'user ALL=(ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/user"
  fi
  git clone -q --no-hardlinks "$TOP" "$root$home/fwd"
  chroot "$root" chown -R "$user:$user" "$home/fwd"
}
remove_root() { [ ! -e "$work/root" ] || rm -rf --one-file-system "$work/root"; }

inside() {
  local user=$1 home=/root
  [ "$user" = root ] || home=/home/user
  # shellcheck disable=SC2016 # the inner shell expands the variables
  unshare --mount --pid --ipc --uts --fork --kill-child bash -c '
    set -e
    root=$1 toolchain=$2 user=$3 home=$4 command=$5
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=755 run "$root/run"
    mount -t tmpfs tmp "$root/tmp"
    mount -o bind,ro "$toolchain" "$root/opt/rust"
    mkdir -p "$root/run/lock"
    cd "$root"
    mkdir -p mnt
    pivot_root . mnt
    umount -l /mnt
    cd "$home/fwd"
    environment=(env -i HOME="$home" USER="$user" TERM="${TERM:-dumb}" LANG=C.UTF-8 CARGO_HOME="$home/.cargo"
      PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ${CI:+CI="$CI"})
    if [ "$user" = root ]; then exec "${environment[@]}" bash -c "$command"; fi
    # A change of user id clears --kill-child, so this shell stays as the first process of the namespace.
    setpriv --reuid user --regid user --init-groups "${environment[@]}" bash -c "$command" || exit
  ' inside "$work/root" "$TOOLCHAIN" "$user" "$home" "$2"
}

version_of() { chroot "$work/root" dpkg-query -W -f '${Version}' "$1" 2>/dev/null || printf -- '-'; }
owned_by_root() { find "$work/root/home/user/fwd" -user 0 | head -n 5; }

trap remove_root EXIT
if [ -n "$shell" ]; then
  make_base "${suites[0]}"
  make_root "${suites[0]}" "${users[0]}"
  inside "${users[0]}" bash
  exit
fi

rows=() failed=0
row() { printf '%-9s %-5s %-14s %-12s %-5s %-28s %5s\n' "$@"; }
heading=$(row suite user DPDK FRR step result seconds)
note "$heading"
for suite in "${suites[@]}"; do
  make_base "$suite"
  for user in "${users[@]}"; do
    make_root "$suite" "$user"
    for step in "${steps[@]}"; do
      command=scripts/$step.sh
      [ "$step" != frr ] || command='scripts/lab.sh --frr'
      log=$work/$suite-$user-$step.log
      before=$SECONDS
      if inside "$user" "$command" >"$log" 2>&1 </dev/null; then result=passed; else result=FAILED failed=1; fi
      skipped=$(sed -nE 's/^all steps passed, ([0-9]+ skipped).*/\1/p' "$log")
      result+=${skipped:+, $skipped}
      if [ "$user" = user ] && [ -n "$(owned_by_root)" ]; then
        result="FAILED: root owns files" failed=1
        owned_by_root >>"$log"
      fi
      rows+=("$(row "$suite" "$user" "$(version_of libdpdk-dev)" "$(version_of frr)" "$step" "$result" $((SECONDS - before)))")
      note "${rows[-1]}"
    done
    remove_root
  done
done
say "fresh machines, $(date -u +%F), $(git rev-parse --short HEAD)"
printf '%s\n' "$heading" "${rows[@]}"
exit "$failed"
