"""What a round forwards: tables, update streams and captures, drawn from a seed.

The real table and update stream of FWD_DATA are used where a round asks for full tables and they are there. An update stream always
gets changes of its own among the others: nested prefixes above a few addresses that many packets go to, announced and withdrawn
in every order, for those are what a lookup beside an update may get wrong.
"""

import lzma
import os
import subprocess
from ipaddress import ip_address
from pathlib import Path

from captures import formats
from captures import packets as p

from .process import Failed

REAL_TABLES = ("v4-202401.txt.xz", "v6-202401.txt.xz")
REAL_UPDATES = "updates-ris-20190101.txt.xz"
# Addresses whose prefixes change all the time.
HOT = 24
# Next hops from here on are those of prefixes that hide behind longer ones.
HIDDEN = 251
HOT_LENGTHS = {32: (8, 12, 16, 18, 20, 21, 22, 24, 25, 28, 30, 32), 128: (20, 28, 32, 40, 44, 48, 52, 56, 64, 72, 96, 127, 128)}


class Set:
    """A table, an update stream for it and a capture for both: paths."""

    def __init__(self, tables, updates, capture, frames, update_count):
        self.tables, self.updates, self.capture = tables, updates, capture
        self.frames, self.update_count = frames, update_count

    def arguments(self):
        """What every command of the set begins with."""
        return [self.capture] + [word for table in self.tables for word in ("--fib", table)]


class Material:
    """Makes sets in a folder; `app` is the program that generates."""

    def __init__(self, app, folder, data):
        self.app, self.folder = app, Path(folder)
        self.data = Path(data) if data and all((Path(data) / name).exists() for name in (*REAL_TABLES, REAL_UPDATES)) else None
        self.folder.mkdir(parents=True, exist_ok=True)

    def table(self, seed, routes, family="both"):
        """A generated table of so many routes."""
        path = self.folder / f"{family}-{routes}-{seed}.txt"
        if not path.exists():
            self._generate(path, "--family", family, "--routes", routes, "--seed", seed)
        return path

    def _generate(self, path, *words):
        command = [self.app, "fib", "generate", *map(str, words), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))}: {done.stderr}")

    def small(self, seed, routes=3000, updates=4000, frames=1000):
        """For engines whose lookups are interpreted, and for many runs."""
        return self._set(f"small-{routes}-{updates}-{frames}-{seed}", seed, [self.table(seed, routes)], updates, frames)

    def full(self, seed, routes, updates, frames=6000):
        """The real table and stream where there are any, else generated ones of so many routes and updates."""
        if self.data is None:
            return self._set(f"full-{seed}", seed, [self.table(seed, routes)], updates, frames)
        tables = [self.data / name for name in REAL_TABLES]
        return self._set(f"real-{seed}", seed, tables, None, frames)

    def growing(self, seed, routes, more, frames=1000, back=False):
        """A table of so many routes, and a stream that announces `more` others, so that every structure has to grow; with `back` it
        then withdraws them all.
        """
        told = self.folder / f"growing-{more}-{seed}.told"
        rng = p.SplitMix64(seed)
        lines = [line for line in self.table(seed + 1, more).read_text(encoding="ascii").splitlines() if not line.startswith("#")]
        rng.shuffle(lines)
        changes = [f"a {line}" for line in lines]
        if back:
            rng.shuffle(lines)
            changes += [f"w {line.split()[0]}" for line in lines]
        told.write_text("".join(f"{change}\n" for change in changes), encoding="ascii")
        return self._set(f"growing-{routes}-{more}-{seed}", seed, [self.table(seed, routes)], told, frames)

    def _set(self, name, seed, tables, updates, frames):
        """`updates`: how many to generate, or a file of them; None for the real ones."""
        rng = p.SplitMix64(seed)
        prefixes = sample(rng, tables, 4 * frames)
        told = self.folder / f"{name}.told"
        if updates is None:
            told = self.data / REAL_UPDATES
        elif isinstance(updates, Path):
            told = updates
        else:
            words = [word for table in tables for word in ("--fib", table)]
            self._generate(told, "--updates", updates, "--seed", seed, *words)
        addresses = [inside(rng, rng.choice(prefixes)) for _ in range(HOT)]
        # A few pairs share their first bits, so that what is above one is above the other.
        addresses += [flip(rng, address) for address in addresses[: HOT // 2]]
        stream, capture = self.folder / f"{name}.updates", self.folder / f"{name}.pcap"
        with opened(told) as lines, open(stream, "w", encoding="ascii") as out:
            count = mingle(rng, lines, addresses, out, every=32 if updates is None else 8)
        changed = sample(rng, [told], frames)
        frames_made = [frame(rng, prefixes, changed, addresses) for _ in range(frames)]
        records = [(index * 1000, made, len(made)) for index, made in enumerate(frames_made)]
        capture.write_bytes(formats.pcap(records, ns=True))
        return Set(tables, stream, capture, frames, count)


def opened(path):
    """The lines of a text file, plain or xz."""
    return lzma.open(path, "rt", encoding="ascii") if str(path).endswith(".xz") else open(path, encoding="ascii")


def parse(text):
    """`PREFIX` as (address, length, bits)."""
    address, _, length = text.partition("/")
    address = ip_address(address)
    return int(address), int(length), address.max_prefixlen


def sample(rng, paths, count):
    """Prefixes drawn from files of routes or updates, each family alike where both are there."""
    by_family = {32: [], 128: []}
    seen = {32: 0, 128: 0}
    for path in paths:
        with opened(path) as lines:
            for line in lines:
                prefix = next((word for word in line.split()[:3] if "/" in word), None)
                if prefix is None:
                    continue
                bits = 128 if ":" in prefix else 32
                seen[bits] += 1
                kept = by_family[bits]
                # Reservoir sampling, Vitter's algorithm R.
                if len(kept) < count:
                    kept.append(prefix)
                else:
                    at = rng.next() % seen[bits]
                    if at < count:
                        kept[at] = prefix
    chosen = [[parse(text) for text in kept] for kept in by_family.values() if kept]
    if not chosen:
        raise Failed(f"no prefixes in {', '.join(map(str, paths))}")
    return [rng.choice(rng.choice(chosen)) for _ in range(count)]


def inside(rng, prefix):
    """A random address in a prefix, as (address, bits)."""
    address, length, bits = prefix
    return address | rng.below(1 << (bits - length)), bits


def flip(rng, address):
    """An address that differs from another from some bit in the lower half on."""
    value, bits = address
    return value ^ (1 << rng.below(bits // 2)), bits


def text(address, bits):
    """An address or, with a length, the base of a prefix, in text."""
    return str(ip_address(address.to_bytes(bits // 8, "big")))


def prefix_text(address, bits, length):
    return f"{text(address >> (bits - length) << (bits - length), bits)}/{length}"


def mingle(rng, lines, addresses, out, every):
    """Writes the stream `lines` with changes of hot prefixes after `every` so many; how many updates it has."""
    count = 0
    for number, line in enumerate(lines):
        if line.startswith("#"):
            continue
        out.write(line)
        count += 1
        if number % every == 0:
            for change in hot(rng, addresses):
                out.write(change)
                count += 1
    return count


def hot(rng, addresses):
    """Changes of prefixes above one address, which come together or nearly so."""
    address, bits = rng.choice(addresses)
    lengths = HOT_LENGTHS[bits]
    kind = rng.below(6)
    if kind == 5:
        # What the shorter one says is no generation's answer for the address: it comes after the longer one and goes before it.
        short, long = sorted((rng.choice(lengths[:-2]), lengths[-1]))
        hidden = prefix_text(address, bits, short)
        yield f"a {prefix_text(address, bits, long)} {1 + rng.below(HIDDEN - 1)}\n"
        yield f"a {hidden} {HIDDEN + rng.below(5)}\n"
        yield f"w {hidden}\n"
        yield f"w {prefix_text(address, bits, long)}\n"
        return
    # Nested prefixes, from the longest to the shortest or the other way: what covers comes first or last.
    chosen = sorted({rng.choice(lengths) for _ in range(1 + rng.below(4))}, reverse=bool(rng.below(2)))
    if kind == 4:
        chosen = list(lengths)
    for length in chosen:
        prefix = prefix_text(address, bits, length)
        if kind in (0, 1, 4):
            yield f"a {prefix} {1 + rng.below(HIDDEN - 1)}\n"
        elif kind == 2:
            yield f"w {prefix}\n"
        else:
            yield f"a {prefix} {1 + rng.below(HIDDEN - 1)}\n"
            yield f"w {prefix}\n"


def frame(rng, prefixes, changed, hot_addresses):
    """One frame of the mix: most to routes of the table, many to what changes, a few that no router sends on."""
    draw = rng.below(1000)
    if draw < 350:
        address, bits = rng.choice(hot_addresses)
    elif draw < 600:
        address, bits = inside(rng, rng.choice(changed))
    elif draw < 960:
        address, bits = inside(rng, rng.choice(prefixes))
    else:
        bits = 32 if draw < 980 else 128
        address = rng.below(1 << bits)
    destination = text(address, bits)
    size = rng.choice((18, 18, 18, 46, 82, 470, 1400))
    fault = rng.below(200)
    if fault == 0:
        return p.pad(p.ethernet(p.ETHERTYPE_ARP, bytes(28)))
    if fault == 1:
        size = 1600
    hops = 1 if fault == 2 else 64
    if bits == 32:
        lies = {"checksum": 1} if fault == 3 else {}
        packet = p.ipv4_udp("192.0.2.1", destination, size, ttl=hops, **lies)
        ethertype = p.ETHERTYPE_IPV4
    else:
        lies = {"payload_length": 9000} if fault == 3 else {}
        packet = p.ipv6_udp("2001:db8::1", destination, size, hop_limit=hops, **lies)
        ethertype = p.ETHERTYPE_IPV6
    tags = ((p.TPID_C, 7),) if fault in (4, 5, 6) else ()
    return p.pad(p.ethernet(ethertype, packet, tags=tags))


def data_folder():
    """The folder that FWD_DATA names, or None."""
    return os.environ.get("FWD_DATA") or None
