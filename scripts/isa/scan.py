#!/usr/bin/env python3
"""Proves from a binary that the `avx512f` kernels run on Knights Landing: AVX-512F, CD and sets before AVX-512.

Disassembles, with objdump, every function whose demangled name holds `kernel::avx512f`, and every function of the same crate
or of `core::core_arch` that those call directly, and looks each instruction up in knights-landing.txt by its encoding:
  EVEX   the mnemonic must be AVX-512F or CD; unless it is scalar its vector length must be 512 bits (shorter is AVX-512VL)
  VEX    AVX, AVX2, FMA, F16C, BMI, or a 16-bit mask operation of AVX-512F
  other  x86-64 with SSE up to 4.2 and the like
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
KERNELS = "kernel::avx512f"
# Called functions that belong to the kernels though their path does not show it.
FOLLOWED = re.compile(r"\b(lpm_\w+|core::core_arch)::")

EVEX_512 = ("AVX512F_512", "AVX512CD_512")
EVEX_ANY = ("AVX512F_SCALAR", "AVX512F_128N")
VEX = ("AVX", "AVXAES", "F16C", "FMA", "AVX2", "AVX2GATHER", "BMI1", "BMI2", "AVX512F_KOPW")
# VAES and VPCLMULQDQ gave 256-bit forms to these instructions of AVX.
VEX_128_ONLY = {"vaesdec", "vaesdeclast", "vaesenc", "vaesenclast", "vpclmulqdq"}

PREFIX_WORDS = {"rep", "repz", "repnz", "repe", "repne", "lock", "bnd", "notrack", "data16", "addr32", "cs", "ds", "es", "ss", "fs", "gs"}
PREFIX_BYTES = {0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3}
CONDITIONS = {"a": "nbe", "ae": "nb", "e": "z", "g": "nle", "ge": "nl", "ne": "nz"}
STRINGS = {"stos": "stosb", "movs": "movsb", "cmps": "cmpsb", "scas": "scasb", "lods": "lodsb"}
# endbr64 is a NOP on CPUs without CET.
ALIASES = {"movabs": "mov", "sal": "shl", "icebp": "int1", "endbr64": "nop", "xlatb": "xlat", **STRINGS}
PREDICATE = r"(?:eq|lt|le|unord|neq|nlt|nle|ord|nge|ngt|false|ge|gt|true)(?:_[ou][qs]|_s)?"


class Tables:
    """knights-landing.txt: instruction set -> mnemonics."""

    def __init__(self, path=HERE / "knights-landing.txt"):
        self.sets, name = {}, None
        for line in path.read_text().splitlines():
            if line.startswith("#"):
                continue
            if not line.startswith(" "):
                name, line = line.split(":", 1)
                self.sets[name] = set()
            self.sets[name] |= set(line.split())
        self.evex_512 = set().union(*(self.sets[s] for s in EVEX_512))
        self.evex_any = set().union(*(self.sets[s] for s in EVEX_ANY))
        self.vex = set().union(*(self.sets[s] for s in VEX))
        special = set(EVEX_512 + EVEX_ANY + VEX)
        # tzcnt belongs to BMI1 but has no VEX prefix.
        self.legacy = {"tzcnt"}.union(*(names for s, names in self.sets.items() if s not in special))


def canonical(mnemonic):
    """objdump's mnemonic as XED writes it: comparisons lose their predicate, conditions and string operations their alias."""
    if mnemonic in ALIASES:
        return ALIASES[mnemonic]
    found = re.fullmatch(r"(j|set|cmov)(a|ae|e|g|ge|ne)", mnemonic)
    if found:
        return found[1] + CONDITIONS[found[2]]
    found = re.fullmatch(rf"(v?)cmp{PREDICATE}(ps|pd|ss|sd|ph|sh)", mnemonic)
    if found:
        return f"{found[1]}cmp{found[2]}"
    # VEX vpcmpeqd and others are separate instructions: both names are in the tables.
    found = re.fullmatch(r"vpcmp(?:eq|lt|le|neq|nlt|nle)(u?[bwdq])", mnemonic)
    if found and not re.fullmatch(r"vpcmp(eq)[bwdq]", mnemonic):
        return f"vpcmp{found[1]}"
    found = re.fullmatch(r"(v?)pclmul[lh]q[lh]qdq", mnemonic)
    return f"{found[1]}pclmulqdq" if found else mnemonic


def fault(tables, code, mnemonic, operands):
    """Why the instruction is not allowed, or None. `code` is its bytes."""
    at = 0
    while at < len(code) and code[at] in PREFIX_BYTES:
        at += 1
    name = canonical(mnemonic)
    lead = code[at] if at < len(code) else None
    if lead == 0x62 and len(code) >= at + 6:
        if name in tables.evex_any:
            return None
        if name not in tables.evex_512:
            return "EVEX, not an instruction of AVX-512F or CD"
        # EVEX byte 3: L'L in bits 6:5, b in bit 4. With b and two registers L'L is the rounding mode and the length is 512.
        length, rounding = code[at + 3] >> 5 & 3, code[at + 3] & 0x10 and code[at + 5] >> 6 == 3
        return None if length == 2 or rounding else f"EVEX of {128 << length} bits, that is AVX-512VL"
    if lead in (0xC4, 0xC5):
        if name in VEX_128_ONLY and "ymm" in operands:
            return "256 bits, that is VAES or VPCLMULQDQ"
        return None if name in tables.vex else "VEX, not an instruction of AVX, AVX2, FMA, BMI or a mask operation of AVX-512F"
    known = {name, f"{name}_near", f"{name}_xmm"} & tables.legacy
    return None if known else "not an instruction of Knights Landing"


def run(*command):
    """The command's output; its failure is ours, with its message."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"isa-scan: {command[0]}: {done.stderr.strip()}")
    return done.stdout


class Binary:
    """Functions of an executable or object file, and their instructions."""

    LINE = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t?(.*)$")

    def __init__(self, path):
        self.path = str(path)
        mangled = run("nm", "--defined-only", "-S", self.path).splitlines()
        demangled = run("nm", "--defined-only", "-S", "-C", self.path).splitlines()
        self.functions = {}
        for raw, line in zip(mangled, demangled):
            fields = line.split(" ", 3)
            if len(fields) == 4 and fields[2] in "tTwW" and int(fields[1], 16):
                self.functions[int(fields[0], 16)] = (int(fields[1], 16), fields[3], raw.split(" ")[-1])

    def instructions(self, address):
        """(address, bytes, mnemonic, operands) of the function at `address`."""
        size = self.functions[address][0]
        text = run(
            "objdump", "-d", "-w", "-M", "intel", "--insn-width=16",
            f"--start-address={address:#x}", f"--stop-address={address + size:#x}", self.path,
        )  # fmt: skip
        for line in text.splitlines():
            found = self.LINE.match(line)
            if not found:
                continue
            words = found[3].split(None)
            while words and (words[0] in PREFIX_WORDS or words[0].startswith(("rex", "{"))):
                words.pop(0)
            mnemonic, operands = (words[0], " ".join(words[1:])) if words else ("nop", "")
            yield int(found[1], 16), bytes.fromhex(found[2]), mnemonic, operands


def scan(path, tables, verbose=False):
    """(functions scanned, instructions scanned, 512-bit ones among them, faults as text) of one binary."""
    binary = Binary(path)
    todo = [a for a, (_, name, _) in binary.functions.items() if KERNELS in name]
    seen, count, wide, faults = set(todo), 0, 0, []
    while todo:
        address = todo.pop()
        name = binary.functions[address][1]
        before = count
        for at, code, mnemonic, operands in binary.instructions(address):
            count += 1
            wide += "zmm" in operands
            why = fault(tables, code, mnemonic, operands)
            if why:
                faults.append(f"{name}\n    {at:x}: {code.hex(' ')}  {mnemonic} {operands}\n    {why}")
            target = re.match(r"(?:0x)?([0-9a-f]+) <", operands) if mnemonic in ("call", "jmp") else None
            callee = int(target[1], 16) if target else None
            if callee in binary.functions and callee not in seen and FOLLOWED.search(binary.functions[callee][1]):
                seen.add(callee)
                todo.append(callee)
        if verbose:
            print(f"  {count - before:6} instructions  {name}")
    return len(seen), count, wide, faults


GOOD = [
    "vpaddd zmm0, zmm1, zmm2", "vpgatherdd zmm0{k1}, [rax+zmm1*4]", "vpgatherqd ymm0{k1}, [rax+zmm1*8]", "vpscatterdd [rax+zmm1*4]{k1}, zmm0",
    "vpconflictd zmm0, zmm1", "vplzcntq zmm0, zmm1", "vpcmpeqd k1, zmm0, zmm1", "vpcmpltud k1{k2}, zmm0, zmm1", "vpcmpneqq k1, zmm0, [rax]{1to8}",
    "vptestnmd k1, zmm0, zmm0", "vpternlogd zmm0, zmm1, zmm2, 0x96", "vpcompressd [rax]{k1}, zmm0", "vpexpandq zmm0{k1}{z}, [rax]",
    "vpmovqd ymm0, zmm1", "vpmovzxwd zmm0, ymm1", "vextracti32x4 xmm0, zmm17, 3", "vextracti64x4 [rax], zmm17, 1", "vmovdqu64 zmm0, [rax]",
    "vpbroadcastd zmm0, eax", "vpbroadcastmw2d zmm0, k1", "vmovd xmm17, eax", "vaddss xmm17, xmm1, xmm2", "vaddps zmm0, zmm1, zmm2, {rn-sae}",
    "vpmulld zmm0, zmm1, zmm2", "vpmuludq zmm0, zmm1, zmm2", "vprolvd zmm0, zmm1, zmm2", "kmovw eax, k1", "kortestw k1, k2", "kunpckbw k1, k2, k3",
    "vpaddd ymm0, ymm1, ymm2", "vpshufb ymm0, ymm1, ymm2", "vpgatherdd ymm0, [rax+ymm1*4], ymm2", "vzeroupper", "vfmadd213ps ymm0, ymm1, ymm2",
    "vcvtph2ps ymm0, xmm1", "vaesenc xmm0, xmm1, xmm2", "mulx rax, rcx, rdx", "shlx rax, rcx, rdx", "tzcnt rax, rcx", "lzcnt rax, rcx", "popcnt rax, rcx",
    "pext rax, rcx, rdx", "adcx rax, rcx", "movbe rax, [rcx]", "crc32 eax, cl", "pclmulqdq xmm0, xmm1, 1", "movabs rax, 0x1122334455667788",
    "rep stosb", "lock cmpxchg [rax], rcx", "cmova rax, rcx", "setne al", "jae 1f\n1:", "cmpltps xmm0, xmm1", "cqo", "cdqe", "movsxd rax, ecx",
    "movsd xmm0, [rax]", "imul rax, rcx", "bt eax, 3", "prefetcht0 [rax]", "endbr64", "ud2", "nop word ptr [rax+rax]", "pause", "leave", "xgetbv",
]  # fmt: skip
BAD = {
    "BW": ["vpaddb zmm0, zmm1, zmm2", "vpshufb zmm0, zmm1, zmm2", "vmovdqu8 zmm0, [rax]", "vpcmpeqb k1, zmm0, zmm1", "vpcmpub k1, zmm0, zmm1, 1",
           "vpsllw zmm0, zmm1, 3", "kmovq rax, k1", "kmovd eax, k1", "kortestq k1, k2", "vpmovm2b zmm0, k1", "vpsadbw zmm0, zmm1, zmm2",
           "vpslldq zmm0, zmm1, 2", "vpermw zmm0, zmm1, zmm2", "vpextrb eax, xmm17, 1"],
    "DQ": ["vpmullq zmm0, zmm1, zmm2", "vandps zmm0, zmm1, zmm2", "vxorpd zmm0, zmm1, zmm2", "vpmovm2d zmm0, k1", "vpmovd2m k1, zmm0", "kmovb eax, k1",
           "kortestb k1, k2", "ktestw k1, k2", "kaddw k1, k2, k3", "vextracti32x8 ymm0, zmm1, 1", "vextracti64x2 xmm0, zmm1, 1",
           "vbroadcasti32x2 zmm0, xmm1", "vcvtqq2pd zmm0, zmm1", "vpextrd eax, xmm17, 1", "vpinsrq xmm17, xmm1, rax, 1"],
    "VL": ["vpaddd ymm17, ymm1, ymm2", "vpaddd xmm0{k1}, xmm1, xmm2", "{evex} vpaddd ymm0, ymm1, ymm2", "vpternlogq ymm0, ymm1, ymm2, 3",
           "vpcmpeqd k1, ymm0, ymm1", "vpgatherdd ymm0{k1}, [rax+ymm1*4]", "vpcompressd ymm0{k1}, ymm1", "vpbroadcastd ymm0, eax", "vpmovqd xmm0, ymm1",
           "vpconflictd ymm0, ymm1", "vplzcntd xmm0, xmm1", "vmovdqu32 ymm0{k1}, [rax]", "vpaddd ymm0, ymm1, [rax]{1to8}", "vprold ymm0, ymm1, 3"],
    "later AVX-512": ["vpermb zmm0, zmm1, zmm2", "vpmultishiftqb zmm0, zmm1, zmm2", "vpopcntd zmm0, zmm1", "vpopcntq ymm0, ymm1", "vpopcntb zmm0, zmm1",
           "vpshufbitqmb k1, zmm0, zmm1", "vpmadd52luq zmm0, zmm1, zmm2", "vpcompressb zmm0{k1}, zmm1", "vpshldvd zmm0, zmm1, zmm2",
           "vpdpbusd zmm0, zmm1, zmm2", "vp2intersectd k2, zmm0, zmm1", "vcvtne2ps2bf16 zmm0, zmm1, zmm2", "vaddph zmm0, zmm1, zmm2",
           "vaesenc zmm0, zmm1, zmm2", "vpclmulqdq zmm0, zmm1, zmm2, 1", "vgf2p8mulb zmm0, zmm1, zmm2"],
    "only Xeon Phi": ["vrcp28ps zmm0, zmm1", "vexp2ps zmm0, zmm1"],
    "other sets": ["{vex} vpdpbusd ymm0, ymm1, ymm2", "vaesenc ymm0, ymm1, ymm2", "vpclmulqdq ymm0, ymm1, ymm2, 1", "vgf2p8mulb ymm0, ymm1, ymm2",
           "gf2p8mulb xmm0, xmm1", "sha256rnds2 xmm0, xmm1", "xbegin 1f\n1:", "rdpid rax", "clwb [rax]", "clflushopt [rax]", "serialize",
           "movdiri [rax], ecx", "movdir64b rax, [rcx]", "extrq xmm0, xmm1", "vfmaddps xmm0, xmm1, xmm2, xmm3", "vpcomb xmm0, xmm1, xmm2, 1",
           "blcfill eax, ecx", "tpause ecx", "rdpkru", "fadd st, st(1)"],
}  # fmt: skip


def function(name, body):
    """Assembler text of a function with Rust's mangling of `NAME`'s path."""
    path = "".join(f"{len(part)}{part}" for part in name.split("::"))
    symbol = f"_ZN{path}17h0123456789abcdefE"
    return f".globl {symbol}\n.type {symbol}, @function\n{symbol}:\n{body}\nret\n.size {symbol}, . - {symbol}\n"


def scan_text(functions, folder, tables):
    """Assembles functions with gcc and scans them."""
    source, binary = Path(folder, "t.s"), Path(folder, "t.o")
    source.write_text(".intel_syntax noprefix\n.text\n" + "".join(functions))
    # Linked, since direct calls have no target before.
    run("gcc", "-nostdlib", "-shared", "-Wl,-Bsymbolic", "-o", str(binary), str(source))
    return scan(binary, tables)


def self_test(tables):
    """Known-good and known-bad snippets; the number of examples that came out wrong."""
    wrong = []
    bad = [(group, body) for group, bodies in BAD.items() for body in bodies]
    with tempfile.TemporaryDirectory() as folder:
        good = [function(f"lpm_phi::kernel::avx512f::f{i}", body) for i, body in enumerate(GOOD)]
        functions, _, _, faults = scan_text(good, folder, tables)
        wrong += [f"refused though allowed: {text}" for text in faults]
        wrong += [] if functions == len(good) else [f"{functions} kernels found of {len(good)}"]
        faults = scan_text([function(f"lpm_phi::kernel::avx512f::f{i}", body) for i, (_, body) in enumerate(bad)], folder, tables)[3]
        found = [text.split("\n")[0].rsplit("::", 1)[-1] for text in faults]
        wrong += [f"let through though {group}: {body}" for i, (group, body) in enumerate(bad) if found.count(f"f{i}") != 1]
        outside = [function(f"{path}::f", "vpaddb zmm0, zmm1, zmm2") for path in ("lpm_phi::kernel::scalar", "core::fmt")]
        if scan_text(outside, folder, tables)[0] != 0:
            wrong.append("functions outside kernel::avx512f were taken for kernels")
        kernel = function("lpm_phi::kernel::avx512f::f", "call _ZN7lpm_phi6kernel6scalar1f17h0123456789abcdefE")
        if len(scan_text(outside + [kernel], folder, tables)[3]) != 1:
            wrong.append("a bad helper that a kernel calls was not found")
    for text in wrong:
        print(f"isa-scan: self-test: {text}")
    print(f"isa-scan: self-test: {len(good) + len(bad) + 2} examples, {len(wrong)} wrong")
    return len(wrong)


def main():
    """Exit 0 clean, 1 an instruction that is not allowed, or no kernel found, or a failed self-test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="*", type=Path, help="executables or object files, with their symbols")
    parser.add_argument("--self-test", action="store_true", help="scan known-good and known-bad snippets made by gcc")
    parser.add_argument("--verbose", action="store_true", help="list the functions")
    options = parser.parse_args()
    if not options.binary and not options.self_test:
        parser.error("name a binary, or --self-test")
    tables, failed = Tables(), False
    if options.self_test:
        failed = self_test(tables) > 0
    for path in options.binary:
        functions, count, wide, faults = scan(path, tables, options.verbose)
        for text in faults:
            print(text)
        print(f"isa-scan: {path}: {functions} functions, {count} instructions, {wide} of 512 bits, {len(faults)} not allowed")
        if not functions:
            print(f"isa-scan: {path}: no function whose path holds {KERNELS}: nothing was proven", file=sys.stderr)
        elif not wide:
            print(f"isa-scan: {path}: the kernels hold no 512-bit instruction: nothing was proven", file=sys.stderr)
        failed |= bool(faults) or not functions or not wide
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
