#!/usr/bin/env python3
"""Runs the commands of README.md and docs/*.md, so that the pages stay correct.

  scripts/docs_check.py PROGRAM           all pages, with this fwd-app
  scripts/docs_check.py PROGRAM PAGE..    some pages
  scripts/docs_check.py --list            the mark of each block

Every block between ``` has a mark in the line before it, an HTML comment. A block without one is an error.

  <!-- run: namespace -->        bash runs it, and every command must succeed. The blocks of a page share a shell, a folder, and namespaces
                                 of network, processes and mounts with a separate /run; background processes continue.
  <!-- run: prompt -->           the same for words of `fwd-app ctl`, one command a line
  <!-- run: terminal TEXT -->    a command that keeps running at a separate terminal; the next block follows when it has printed TEXT
  <!-- run: guest -->            `scripts/server.sh docs` runs it in a server with NICs; with `guest's host`, on a host at the other end of a cable
  <!-- not run: WHY -->          commands that do not run; scripts that WHY names must exist
  <!-- output -->                the output of the block above: its lines must occur; numbers and MAC addresses may differ
  <!-- file: NAME -->            a file for the blocks below
  <!-- part of: FILE -->         lines of a file of this repository, verbatim
  <!-- no commands -->           a picture, a configuration, a syntax

More comments, above the mark:

  <!-- before: COMMANDS -->      run first, and not shown: prepares what the reader of the page already has
  <!-- but not: TEXT: WHY -->    lines of the block with TEXT are not run
  <!-- exit code: N -->          the last command of the block ends with this code

The folder of a page has `fwd-app`, `target/release/fwd-app`, `scripts` and `pcap`. The unit tests of fwd-app and lpm-bench check that all
their lines parse, also those that do not run. Exit 0: success. Exit 1: an error. Exit 2: bad usage. Without root it checks the marks and
prints SKIPPED.
"""

import ipaddress
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PAGE_S = 100
KINDS = ("run: namespace", "run: prompt", "run: terminal ", "run: guest", "not run: ", "output", "file: ", "part of: ", "no commands")
ESCAPES = re.compile(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\r")
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


class Wrong(Exception):
    """A page is wrong; the text says where and how."""


@dataclass
class Block:
    """A block between ```: where it begins, its mark, what the comments above say, and its lines."""

    place: str
    mark: str
    lines: list
    before: list = field(default_factory=list)
    but_not: list = field(default_factory=list)
    code: int = 0

    def is_a(self, kind):
        """Whether its mark begins so."""
        return self.mark.startswith(kind)

    def rest(self, kind):
        """The text of the mark after its kind."""
        return self.mark.removeprefix(kind).strip()

    def chosen(self):
        """Its lines to run. A line continues after a backslash."""
        text = re.sub(r"\\\n", "\\\n\0", "\n".join(self.lines))
        lines = re.split(r"\n(?!\0)", text)
        return [line.replace("\0", "") for line in lines if not any(text in line for text in self.but_not)]


def blocks_of(path):
    """The blocks of a page, each with its mark."""
    name, found, block, comments = path.relative_to(TOP), [], None, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        comment = re.fullmatch(r"<!-- (.*) -->", line.strip())
        if line.lstrip().startswith("```"):
            if block is None:
                block = make_block(f"{name}:{number}", comments)
                found.append(block)
            else:
                block = None
            comments = []
        elif block is not None:
            block.lines.append(line)
        elif comment:
            comments.append(comment[1])
        else:
            comments = []
    if block is not None:
        raise Wrong(f"{block.place}: the block does not end")
    return found


def make_block(place, comments):
    """A block of these comments, the last of which is its mark."""
    if not comments or not comments[-1].startswith(KINDS):
        raise Wrong(f"{place}: the line before the block must be a comment with its mark, one of: {', '.join(KINDS)}")
    block = Block(place, comments[-1], [])
    for comment in comments[:-1]:
        kind, _, text = comment.partition(": ")
        if kind == "before":
            block.before.append(text)
        elif kind == "but not" and ": " in text:
            block.but_not.append(text.partition(": ")[0])
        elif kind == "exit code":
            block.code = int(text)
        else:
            raise Wrong(f"{place}: no such comment: {comment}")
    return block


def check_scripts(block):
    """Scripts that a block names must be there, with the options that it gives them."""
    for line in [block.mark, *block.chosen()]:
        words = line.split("#")[0].replace("`", " ").replace(",", " ").split()
        scripts = [(at, word) for at, word in enumerate(words) if re.match(r"(\./)?scripts/[\w/.-]+$", word)]
        for at, word in scripts:
            path = TOP / word.rstrip(".:)")
            if not path.exists():
                raise Wrong(f"{block.place}: there is no {word}")
            if line == block.mark or not path.is_file():
                continue
            texts = path.read_text() + "".join(part.read_text() for part in sorted(path.with_suffix("").glob("*.py")))
            for option in (other.split("=")[0] for other in words[at + 1 :] if other.startswith("--")):
                if option not in texts:
                    raise Wrong(f"{block.place}: {word} has no option {option}")


def check_part(block):
    """Lines that a page shows of a file must be in it, in sequence."""
    if block.is_a("part of: "):
        path = TOP / block.rest("part of: ")
        if not path.is_file() or "\n".join(["", *block.lines, ""]) not in path.read_text():
            raise Wrong(f"{block.place}: these lines are not in {block.rest('part of: ')}")


def script_of(block, number, folder):
    """The lines of bash that run a block, with its output in a file."""
    lines = [f"echo {number} >{folder}/at", "{ :", *block.before]
    if block.is_a("run: prompt"):
        lines += ["fwd-app ctl <<'END OF WORDS'", *block.chosen(), "END OF WORDS"]
    elif block.is_a("run: terminal"):
        # `script` provides a terminal whose input does not end.
        command, text = "; ".join(block.chosen()), block.rest("run: terminal ")
        lines.append(f"script -qefc {shlex.quote(command)} {folder}/terminal{number} < <(exec sleep {PAGE_S}) >/dev/null &")
        lines.append(f"for _ in {{1..300}}; do grep -qsF -- {shlex.quote(text)} {folder}/terminal{number} && break; sleep 0.1; done")
        lines.append(f"grep -qsF -- {shlex.quote(text)} {folder}/terminal{number} || {{ cat {folder}/terminal{number}; exit 1; }}")
    else:
        *first, last = block.chosen()
        lines += [*first, f"code=0; {last} || code=$?; [ $code = {block.code} ]" if block.code else last]
    lines.append(f"}} >{folder}/printed{number} 2>&1")
    if block.is_a("run: terminal"):
        lines.append(f"cp {folder}/terminal{number} {folder}/printed{number}")
    return lines


def form(line):
    """A line without its variable parts: MAC addresses, states of neighbours, and numbers, but not IP addresses."""

    def number(match):
        try:
            return str(ipaddress.ip_address(match[0].rstrip(".:")))
        except ValueError:
            return "MAC" if MAC.fullmatch(match[0]) else re.sub(r"\d+(\.\d+)?", "N", match[0])

    line = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", line)
    line = re.sub(r"\b(REACHABLE|STALE|DELAY|PROBE)\b", "STATE", ESCAPES.sub("", line))
    return " ".join(re.sub(r"[0-9a-f:.]*[0-9][0-9a-f:.]*", number, line).split())


def check_output(block, printed):
    """Each line of an output block must be in the output; `..` replaces omitted lines."""
    forms = {form(line) for line in printed.splitlines()}
    for line in block.lines:
        if line.strip() and line.strip() != ".." and form(line) not in forms:
            raise Wrong(f"{block.place}: the command above does not print: {line}\nit prints:\n{printed[-3000:]}")


def run_page(blocks, program):
    """Runs the blocks of a page in separate namespaces."""
    with tempfile.TemporaryDirectory(prefix="fwd-docs-", dir="/var/tmp") as folder:
        work, out = Path(folder, "work"), Path(folder, "out")
        for place in work / "target/release", work / "scripts", work / "pcap", out:
            place.mkdir(parents=True)
        script = ["set -euo pipefail", f"cd {work}", f"export PATH={work}:$PATH FWD_APP={work}/fwd-app", "unset TMPDIR"]
        for name, source in ("fwd-app", program), ("target/release/fwd-app", program), ("scripts", TOP / "scripts"), ("pcap", TOP / "pcap"):
            if source == program:
                (work / name).touch()
            script.append(f"mount --bind {shlex.quote(str(source))} {name}")
        script += ["mount -t tmpfs none /run", "mount -t tmpfs none /tmp", "install -d -o frr -g frr /run/frr 2>/dev/null || true", "ip link set lo up"]
        ran = []
        for number, block in enumerate(blocks):
            if block.is_a("file: "):
                text = "\n".join(block.lines)
                script.append(f"cat >{shlex.quote(block.rest('file: '))} <<'END OF FILE'\n{text}\nEND OF FILE")
            elif block.is_a("run: ") and not block.is_a("run: guest"):
                script += script_of(block, number, out)
                ran.append(number)
        if ran:
            command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "bash", "-c", "\n".join(script)]
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PAGE_S, check=False)
                code, errors = done.returncode, done.stderr
            except subprocess.TimeoutExpired:
                code, errors = 124, f"not done after {PAGE_S} s"
            if code:
                at = int((out / "at").read_text()) if (out / "at").exists() else ran[0]
                printed = out / f"printed{at}"
                text = printed.read_text(errors="replace")[-3000:] if printed.exists() else ""
                raise Wrong(f"{blocks[at].place}: exit code {code}\n{text}{errors}")
        # An output block belongs to the last block before it; the guest's output is compared by server/docs.py.
        last = None
        for number, block in enumerate(blocks):
            if number in ran or block.is_a("run: guest"):
                last = number
            elif block.is_a("output"):
                if last is not None and last not in ran:
                    continue
                if last is None:
                    raise Wrong(f"{block.place}: output of a block that has not run")
                check_output(block, (out / f"printed{last}").read_text(errors="replace"))
            elif not block.mark.startswith(("no commands", "file: ", "part of: ")):
                last = None
        return len(ran)


def main():
    """Runs the command line."""
    # Under `nohup` children ignore SIGHUP, which pages send to programs.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    at_root = [TOP / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
    pages = [Path(page).resolve() for page in arguments[1:]] or [*at_root, *sorted((TOP / "docs").glob("*.md"))]
    failed = 0
    for page in pages:
        try:
            blocks = blocks_of(page)
            for block in blocks:
                check_scripts(block)
                check_part(block)
                if arguments[0] == "--list":
                    print(f"{block.place:28} {block.mark}")
            if arguments[0] == "--list":
                continue
            if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
                print(f"SKIPPED: {page.relative_to(TOP)}: namespaces need root")
                continue
            ran = run_page(blocks, Path(arguments[0]).resolve())
            print(f"ok: {page.relative_to(TOP)}, {ran} of {len(blocks)} blocks run", flush=True)
        except Wrong as wrong:
            print(f"FAILED: {wrong}", flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
