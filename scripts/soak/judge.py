"""The checks that a forwarder's report must pass in every round."""

import json

from .process import Failed, signal_name

# Drop reasons that are faults, which a round may allow; all other reasons are compared with the oracle's.
FAULTS = ("tx_full", "engine_stall")
# Allowed growth of memory from the second third of a run to its last. Copies of tables come and go, so `floor` values are compared.
GROWTH_BYTES, GROWTH_SHARE = 8 << 20, 0.01
# Samples are half a second apart: fewer show nothing.
SAMPLES_MIN = 60


def report(path):
    """The JSON report; None if it is missing."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Failed(f"{path} is not JSON: {error}") from None


def no_crash(process, code, allowed=()):
    """Checks for panics, unexpected signals, undocumented exit codes, and violations that the mock driver counted."""
    said = process.errors()
    for word in ("panicked", "stack overflow"):
        if word in said:
            line = next(line for line in said.splitlines() if word in line)
            raise Failed(f"{process.name}: {line}")
    if code not in (0, 1, 2, 3) and code not in allowed:
        raise Failed(f"{process.name} ended with {signal_name(code)}: {last_line(said)}")
    violations = [line for line in said.splitlines() if line.startswith("mockcuda:") and " violations" in line]
    if violations and ", 0 violations" not in violations[-1]:
        raise Failed(f"{process.name}: {violations[-1]}")


def accounted(name, found, faults=()):
    """Checks that every packet left once, sent or dropped, that only allowed faults dropped any, and that none was overtaken."""
    packets = found["packets"]
    dropped = sum(packets["drops"].values())
    if packets["rx"] + packets["originated"] != packets["tx"] + packets["punted"] + dropped + packets["held"]:
        raise Failed(f"{name}: {packets['rx']} rx, but {packets['tx']} tx, {dropped} dropped, {packets['held']} held")
    if packets["held"]:
        raise Failed(f"{name}: {packets['held']} packets are held at the end")
    if packets["reordered"]:
        raise Failed(f"{name}: {packets['reordered']} packets were overtaken")
    for reason in FAULTS:
        if reason not in faults and packets["drops"].get(reason, 0):
            raise Failed(f"{name}: {packets['drops'][reason]} packets dropped as {reason}")


def verified(name, found):
    """Checks that every packet was verified, and none was wrong."""
    verify, fed = found["verify"], found["trace"]["fed"]
    if verify["mismatches"]:
        raise Failed(f"{name}: {verify['mismatches']} of {verify['checked']} results differ from the oracle's")
    packets = found["packets"]
    # Of a packet that leaves as fragments each of these is a result.
    results = packets["rx"] - packets["fragmented"] + packets["originated"]
    if verify["checked"] != results or fed != packets["rx"]:
        raise Failed(f"{name}: {verify['checked']} results checked, {results} expected, of {fed} packets fed and {packets['rx']} received")


def last_line(said):
    """The last line that is not empty."""
    return next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")


def no_growth(process, growth_bytes=GROWTH_BYTES):
    """Checks that memory, threads and open files do not grow after the warm-up, the first third of the time that the process forwards.
    Returns a few words about its memory.
    """
    samples = [sample for sample in process.samples if sample.time_s >= process.forwarding_s]
    process.out.with_suffix(".memory").write_text(
        "".join(f"{each.time_s:.1f} s, {each.memory_kb} KB, {each.threads} threads, {each.files} files\n" for each in process.samples)
    )
    if len(samples) < SAMPLES_MIN:
        return f"too short to judge memory ({len(samples)} samples)"
    third = len(samples) // 3
    early, late = samples[third : 2 * third], samples[2 * third :]
    before, after = (floor([sample.memory_kb for sample in part]) * 1024 for part in (early, late))
    allowed = max(growth_bytes, before * GROWTH_SHARE)
    words = f"{before / 1e6:.1f} MB, later {after / 1e6:.1f} MB"
    if after - before > allowed:
        within_s = (samples[-1].time_s - samples[0].time_s) / 3
        raise Failed(f"{process.name}: memory grew by {(after - before) / 1e6:.1f} MB within {within_s:.0f} s: {words}")
    for what in ("threads", "files"):
        most_early, most_late = (max(getattr(sample, what) for sample in part) for part in (early, late))
        if most_late > most_early + 2:
            raise Failed(f"{process.name}: {most_early} {what}, later {most_late}")
    return words


def floor(values):
    """The 20th percentile."""
    return sorted(values)[len(values) // 5]
