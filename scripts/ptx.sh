#!/usr/bin/env bash
# Makes and checks the PTX of the GPU kernels (lpm-gpu/kernels/NAME.ptx from NAME.cu and common.cuh).
#
#   scripts/ptx.sh                      compile all kernels, write the .ptx next to them (needs clang-16)
#   scripts/ptx.sh NAME..               only these
#   scripts/ptx.sh --check              check the committed .ptx: source hash, forbidden instructions, and byte for byte against
#                                       clang-16 (SKIPPED on a release without it)
#   scripts/ptx.sh --ptxas              assemble for sm_75/80/90/100/120; fail on stack, spills, calls, or more registers than a
#                                       block of 1,024 threads has. Takes ptxas from $PTXAS or PATH, else from a wheel of
#                                       PyPI (about 50 MB, kept in target/ptxas); without it SKIPPED, or failed if FWD_REQUIRE
#                                       names ptxas
#   scripts/ptx.sh --registers          as --ptxas, and print registers and shared memory of each entry
#
# The PTX is committed, so that a build needs no compiler and every machine runs the same bytes. One compiler version makes it;
# --cuda-path=/nonexistent hides other installed toolkits.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KERNELS="$TOP/lpm-gpu/kernels"
CLANG=clang-16
# PTX 6.3 for sm_75: every driver since CUDA 10 loads it, and assembles it for newer devices, too.
FLAGS=(-x cuda --cuda-device-only --cuda-gpu-arch=sm_75 --cuda-path=/nonexistent -nocudainc -nocudalib -O3 -S -Wall -Wextra -Werror)
ARCHITECTURES=(75 80 90 100 120)
# The limit of registers a thread: any kernel may run in blocks of 1,024 threads, and a multiprocessor has 65,536 registers.
REGISTERS_MAX=64
WHEEL=nvidia-cuda-nvcc==13.5.37

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

head_of() { printf '// sha256 of common.cuh and %s.cu: %s\n' "$1" "$(cat "$KERNELS/common.cuh" "$KERNELS/$1.cu" | sha256sum | cut -d' ' -f1)"; }

compile() {
  head_of "$1" >"$2"
  (cd "$KERNELS" && "$CLANG" "${FLAGS[@]}" "$1.cu" -o -) >>"$2"
}

# sound FILE: fails on local memory and calls, which are slow on every device, on other than PTX 6.3 for sm_75, and without a launch bound.
sound() {
  local bad=0
  if grep -nE '\.local|__local_depot|\.extern|call(\.uni)? ' "$1" | grep -v '^[0-9]*:[[:space:]]*//'; then
    note "$1: uses local memory, or calls a function"
    bad=1
  fi
  if [ "$(grep -c '^\.visible \.entry' "$1")" != "$(grep -cx '\.maxntid 1024, 1, 1' "$1")" ]; then
    note "$1: not every entry is bound to blocks of 1,024 threads (.maxntid)"
    bad=1
  fi
  if ! grep -qx '\.version 6\.3' "$1" || ! grep -qx '\.target sm_75' "$1"; then
    note "$1: is not PTX 6.3 for sm_75"
    bad=1
  fi
  return $bad
}

names() { (cd "$KERNELS" && for f in *."$1"; do [ -e "$f" ] && printf '%s\n' "${f%."$1"}"; done) | sort; }

make_all() {
  has "$CLANG" || die "needs $CLANG (apt-get install $CLANG)"
  local name
  for name in "$@"; do
    [ -f "$KERNELS/$name.cu" ] || die "no such kernel file: $KERNELS/$name.cu"
    compile "$name" "$scratch/$name.ptx"
    sound "$scratch/$name.ptx" || die "$name.cu fails the checks above"
    mv "$scratch/$name.ptx" "$KERNELS/$name.ptx"
    note "$name.ptx: $(grep -c '^\.visible \.entry' "$KERNELS/$name.ptx") entries"
  done
}

check_all() {
  local name bad=0
  has "$CLANG" || ! apt-cache show "$CLANG" >/dev/null 2>&1 || need_packages "$CLANG"
  if [ "$(names cu)" != "$(names ptx)" ]; then
    note "the .cu and .ptx files in $KERNELS do not go together: run scripts/ptx.sh"
    bad=1
  fi
  for name in $(names ptx); do
    [ -f "$KERNELS/$name.cu" ] || continue
    sound "$KERNELS/$name.ptx" || bad=1
    if [ "$(head -n 1 "$KERNELS/$name.ptx")" != "$(head_of "$name")" ]; then
      note "$name.ptx: not made from these sources (hash): run scripts/ptx.sh $name"
      bad=1
    elif has "$CLANG"; then
      compile "$name" "$scratch/$name.ptx"
      if cmp -s "$scratch/$name.ptx" "$KERNELS/$name.ptx"; then
        note "$name.ptx: as $CLANG makes it"
      else
        note "$name.ptx: not what $CLANG makes of $name.cu"
        bad=1
      fi
    else
      note "$name.ptx: the source hash is right"
    fi
  done
  has "$CLANG" || note "SKIPPED: byte comparison of the PTX: this release has no $CLANG"
  return $bad
}

need_pip() {
  PYTHON=python3
  "$PYTHON" -m pip --version >/dev/null 2>&1 && return
  PYTHON=/usr/bin/python3
  "$PYTHON" -m pip --version >/dev/null 2>&1 || (need_packages python3-pip) >&2
}

find_ptxas() {
  local kept="$TOP/target/ptxas/ptxas"
  if [ -n "${PTXAS:-}" ]; then
    printf '%s\n' "$PTXAS"
  elif has ptxas; then
    command -v ptxas
  elif [ -x "$kept" ]; then
    printf '%s\n' "$kept"
  elif need_pip && "$PYTHON" -m pip --quiet download --no-deps --dest "$scratch/wheel" "$WHEEL" >"$scratch/pip.log" 2>&1; then
    mkdir -p "$(dirname "$kept")"
    python3 - "$scratch"/wheel/*.whl "$kept" <<'PYTHON'
import os, shutil, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
(name,) = [n for n in wheel.namelist() if n.endswith("/bin/ptxas")]
part = sys.argv[2] + ".part"
with wheel.open(name) as source, open(part, "wb") as target:
    shutil.copyfileobj(source, target)
os.chmod(part, 0o755)
os.replace(part, sys.argv[2])
PYTHON
    printf '%s\n' "$kept"
  fi
}

registers_most() { sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$1" | sort -n | tail -n 1; }

assemble_all() {
  local ptxas name arch log bad=0
  ptxas=$(find_ptxas)
  if [ -z "$ptxas" ]; then
    case ",${FWD_REQUIRE:-}," in *,ptxas,*) die "no ptxas: none in PATH, and pip could not get $WHEEL" ;; esac
    skipped "assembling the PTX: no ptxas in PATH, and pip could not get $WHEEL"
    return
  fi
  for name in $(names ptx); do
    for arch in "${ARCHITECTURES[@]}"; do
      log="$scratch/$name.$arch"
      if ! "$ptxas" -v -arch="sm_$arch" "$KERNELS/$name.ptx" -o "$scratch/cubin" >"$log" 2>&1; then
        sed "s/^/$name sm_$arch: /" "$log"
        bad=1
      elif [ "$(registers_most "$log")" -gt "$REGISTERS_MAX" ]; then
        note "$name.ptx: $(registers_most "$log") registers on sm_$arch: a block of 1,024 threads has $REGISTERS_MAX a thread"
        bad=1
      elif grep -E 'stack frame|spill' "$log" | grep -vE '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'; then
        note "$name.ptx: stack or spills on sm_$arch"
        bad=1
      elif [ "$1" = registers ]; then
        sed -n "s/.*entry function '\(.*\)' for '\(.*\)'/\2 \1/p; s/.*Used/  Used/p" "$log" | paste - - | sort
      else
        note "$name.ptx: sm_$arch, no stack, no spills, $(registers_most "$log") registers at most"
      fi
    done
  done
  return $bad
}

action=make wanted=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    --check) action=check ;;
    --ptxas) action=ptxas ;;
    --registers) action=registers ;;
    -*) usage >&2 && exit 2 ;;
    *) wanted+=("$argument") ;;
  esac
done
case $action in
  make)
    if [ ${#wanted[@]} = 0 ]; then mapfile -t wanted < <(names cu); fi
    make_all "${wanted[@]}"
    ;;
  check) check_all ;;
  ptxas | registers) assemble_all "$action" ;;
esac
