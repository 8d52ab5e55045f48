"""The start of each forwarder, its expected output, and its known differences.

All get the same routes: port P of a rule file is the P-th port. Port 0 receives; where a forwarder looks routes up, all ports send. A class
is a forwarder, `form` its configuration: `stock` as its documentation starts it, with room for a full table, `best` tuned for this work."""

import shutil
import tempfile
from pathlib import Path

from . import traffic

START_S = 240


class Peer:
    """Common part of all. `run` gives the packets, ports, CPU and page of this process (a `Run` of __main__)."""

    forms = ("best", "stock")
    # Its known differences from a router (names from `check`).
    known = frozenset()
    looks_up = True
    notes = {}

    def __init__(self, form, run):
        self.form, self.run = form, run

    @classmethod
    def title(cls, form):
        return f"{cls.name} {form}"

    def vdevs(self, **options):
        """The ports, with these options for the first one."""
        common = f"page={self.run.page.path}"
        if self.run.sent:
            common += f",sent={self.run.sent}"
        if self.run.paced:
            common += ",paced=1"
        first = "".join(f",{key}={value}" for key, value in options.items())
        return [f"net_capture0,pcap={self.run.capture},{common}{first}"] + [f"net_capture{n},{common}" for n in range(1, self.run.ports)]

    def eal(self, megabytes, lcores):
        """EAL's arguments for a program of the installed DPDK."""
        words = ["--lcores", lcores, "-m", str(megabytes), "--file-prefix", f"against-{self.run.name}", "--in-memory", "--no-pci"]
        words += ["--iova-mode=va", "--no-telemetry", "-d", str(self.run.folder / "librte_net_capture.so")]
        for vdev in self.vdevs():
            words += ["--vdev", vdev]
        return words

    def environment(self):
        return {}

    def set_up(self, process):
        """After the start: routes and ports, where that is not the command line's."""

    def clean_up(self):
        """After the end."""

    def next_hop_mac(self, port):
        """The destination MAC of packets that leave by this port."""
        return bytes((2, 0, 0, 0, 0, port + 1))

    def is_next_hop(self, mac, port):
        """Whether a packet that leaves by this port may have this destination. None: the one in `expected`."""
        return None

    def expected(self, frame, port):
        """The port and the frame that a router sends for this one, to whose address the routes give `port`."""
        return port, self.next_hop_mac(port) + port_mac(port) + traffic.forwarded(frame[12:])


def port_mac(port):
    """The MAC address of a net_capture port."""
    return bytes((2, 0, 0, 0, 1, port))


class FwdApp(Peer):
    """Ours; the form is the name of an engine."""

    name = "fwd-app"

    def command(self):
        run = self.run
        words = [run.app, "run", *run.route_words, "--engine", self.form, "--rx-burst", run.burst, "--batch", run.burst]
        # For latencies its control thread has a separate CPU, as on a server.
        lcores = f"{run.other_cpu},{run.cpu}" if run.paced else f"{run.cpu}"
        words += ["--config", f"(0,0,{run.cpu})", "--ctl", self.socket(), *run.more_words, "--", *self.eal(900, lcores)]
        return words + ["--force-max-simd-bitwidth=512"]

    def socket(self):
        return self.run.scratch / f"{self.run.name}.ctl"

    @classmethod
    def title(cls, form):
        return form

    def set_up(self, process):
        process.wait_for_line("forwarding; Ctrl-C stops", START_S)

    def is_next_hop(self, mac, port):
        # With --hops the routes have separate next hops, and id N leaves by port (N-1) mod P.
        if not self.run.hops:
            return None
        number = int.from_bytes(mac[3:], "big")
        return mac[:3] == b"\2\0\0" and 1 <= number <= self.run.hops and (number - 1) % self.run.ports == port


class L3fwd(Peer):
    """DPDK's example. `best` looks up in rte_fib with AVX-512, `stock` in rte_lpm, its default."""

    name = "l3fwd"
    known = frozenset({"hop limit kept"})
    notes = {"best": "--lookup=fib, AVX-512", "stock": "--lookup=lpm"}

    def command(self):
        run = self.run
        words = [run.folder / self.name, *self.eal(2600, f"{run.cpu}")]
        if self.form == "best":
            words.append("--force-max-simd-bitwidth=512")
        words += ["--", "-p", hex((1 << run.ports) - 1), "-P", "--config", f"(0,0,{run.cpu})"]
        words.append("--lookup=fib" if self.form == "best" else "--lookup=lpm")
        return words + [f"--rule_ipv4={run.rules[0]}", f"--rule_ipv6={run.rules[1]}"]

    def next_hop_mac(self, port):
        return bytes((2, 0, 0, 0, 0, port))


class L3fwd256(L3fwd):
    """The same with bursts of 256, as ours; 32 is a constant of its source."""

    name = "l3fwd-256"
    notes = {form: f"{note}, built with MAX_PKT_BURST 256" for form, note in L3fwd.notes.items()}


class Testpmd(Peer):
    """DPDK's test program, with three of its modes as forms. It looks nothing up: all packets leave by port 1."""

    name = "testpmd"
    forms = ("io", "mac", "5tswap")
    looks_up = False
    notes = {
        "io": "--forward-mode=io: looks at no packet, the most that the driver gives",
        "mac": "--forward-mode=mac: writes both MAC addresses",
        "5tswap": "--forward-mode=5tswap: reads the headers and swaps MAC addresses, IP addresses and UDP ports",
    }

    def command(self):
        run = self.run
        words = [shutil.which("dpdk-testpmd"), *self.eal(600, f"0@{run.other_cpu},1@{run.cpu}")]
        words += ["--", f"--forward-mode={self.form}", "--auto-start", "--nb-cores=1", "--total-num-mbufs=140000", f"--burst={run.burst}"]
        return words + ["--eth-peer=1,02:00:00:00:00:02", "--portmask=0x3", "--disable-link-check"]

    def expected(self, frame, port):
        if self.form == "mac":
            return 1, self.next_hop_mac(1) + port_mac(1) + frame[12:]
        if self.form == "5tswap":
            size, first = (4, 26) if frame[12:14] == traffic.TYPES[4] else (16, 22)
            source, destination, rest = frame[first : first + size], frame[first + size : first + 2 * size], frame[first + 2 * size :]
            return 1, frame[6:12] + frame[:6] + frame[12:first] + destination + source + rest[2:4] + rest[:2] + rest[4:]
        return 1, frame


class Grout(Peer):
    """DPDK's router. It makes interfaces, so it runs in a separate network namespace."""

    name = "grout"
    links = None
    notes = {
        "best": "GROUT_POLL_MODE, bursts of 256 from the port that receives (as shipped 256 is divided by the number of ports), checksums marked as checked",
        "stock": "as its README starts it, checksums summed by grout",
    }

    def command(self):
        run = self.run
        self.socket().unlink(missing_ok=True)
        inner = 'ip link set lo up; exec taskset -c "$0" "$@"'
        words = ["unshare", "--net", "bash", "-c", inner, f"{run.other_cpu},{run.cpu}", run.folder / "grout" / "bin" / "grout"]
        return words + ["--", "--file-prefix", f"against-{run.name}", "--iova-mode=va"]

    def environment(self):
        tuned = {"GROUT_POLL_MODE": "1", "GROUT_RX_BURST": "256"} if self.form == "best" else {}
        chunk = {"GROUT_MEMPOOL_CHUNK_SIZE": str(max(16383, 2 * self.run.packets))}
        return {"GROUT_SOCK_PATH": str(self.socket()), "GROUT_MAX_ROUTES": "64", "GROUT_OVERRIDE_DEFAULT_ROUTE": "true", **chunk, **tuned}

    def socket(self):
        return self.run.scratch / f"{self.run.name}.sock"

    def short_vdevs(self, **options):
        """Its command line limits the arguments of a device to 127 bytes: links with short names replace the files."""
        folder = Path(tempfile.mkdtemp(prefix="g", dir="/run"))
        self.links = folder
        links = []
        for name, path in (("c", self.run.capture), ("p", self.run.page.path), ("s", self.run.sent)):
            if path is not None:
                (folder / name).symlink_to(path)
                links.append((str(path), str(folder / name)))
        vdevs = self.vdevs(**options)
        for path, link in sorted(links, key=lambda pair: -len(pair[0])):
            vdevs = [vdev.replace(path, link) for vdev in vdevs]
        return vdevs

    def clean_up(self):
        if self.links is not None:
            shutil.rmtree(self.links)

    def set_up(self, process):
        run, tools = self.run, self.run.folder / "grout" / "bin"
        process.wait_for_answer([tools / "grcli", "-s", self.socket(), "interface", "show"], START_S)
        lines = []
        vdevs = self.short_vdevs(checked=1) if self.form == "best" else self.short_vdevs()
        for number, vdev in list(enumerate(vdevs))[1:] + [(0, vdevs[0])]:
            lines.append(f"interface add port p{number} devargs {vdev} rxqs 1 qsize 512")
        lines.append("interface set vrf main rib4-routes 1250000 fib4-tbl8 16384 rib6-routes 300000 fib6-tbl8 400000")
        for number in range(run.ports):
            mac = self.next_hop_mac(number).hex(":")
            lines.append(f"nexthop add l3 iface p{number} id {number + 1} address 198.18.{number}.2 mac {mac}")
            lines.append(f"nexthop add l3 iface p{number} id {number + 101} address 2001:db8:ffff:{number}::2 mac {mac}")
        if self.form == "best":
            lines.append("graph config set vector-max 256 rx-burst-max 256")
        script = run.scratch / f"{run.name}.grcli"
        script.write_text("\n".join(lines) + "\n", encoding="ascii")
        process.tool([tools / "grcli", "-s", self.socket(), "-xef", script])
        process.tool([tools / "grout_routes", self.socket(), *run.rules])


class Vpp(Peer):
    """FD.io VPP with its dpdk plugin."""

    name = "vpp"
    known = frozenset()
    notes = {
        "best": "no-multi-seg, 4,194,304 buckets for IPv6 prefixes, heap in 2 MB pages",
        "stock": "defaults, with heaps that hold the table",
    }

    def folder(self):
        return self.run.scratch / self.run.name

    def command(self):
        run, build, folder = self.run, self.run.folder / "build-vpp", self.folder()
        folder.mkdir(exist_ok=True)
        (folder / "cli.sock").unlink(missing_ok=True)
        best = self.form == "best"
        config = [
            f"unix {{ nodaemon nosyslog nocolor cli-no-pager cli-listen {folder}/cli.sock runtime-dir {folder} log {folder}/vpp.log }}",
            f"cpu {{ main-core {run.other_cpu} corelist-workers {run.cpu} }}",
            f"memory {{ main-heap-size 1G {'main-heap-page-size 2M' if best else ''} }}",
            f"buffers {{ buffers-per-numa {max(32768, 2 * run.packets)} }}",
            f"ip6 {{ {'hash-buckets 4194304' if best else ''} heap-size 1G }}",
            f"statseg {{ size 512M socket-name {folder}/stats.sock }}",
            f"api-segment {{ prefix against-{run.name} }}",
            f"socksvr {{ socket-name {folder}/api.sock }}",
            f"plugins {{ path {build}/lib/x86_64-linux-gnu/vpp_plugins }}",
            f"dpdk {{ no-pci iova-mode va file-prefix against-{run.name} {'no-multi-seg' if best else ''} {' '.join('vdev ' + v for v in self.vdevs())} }}",
        ]
        (folder / "startup.conf").write_text("\n".join(config) + "\n", encoding="ascii")
        return [build / "bin" / "vpp", "-c", folder / "startup.conf"]

    def environment(self):
        return {"LD_LIBRARY_PATH": str(self.run.folder / "build-vpp" / "lib" / "x86_64-linux-gnu")}

    def set_up(self, process):
        run, folder = self.run, self.folder()
        control = [run.folder / "build-vpp" / "bin" / "vppctl", "-s", folder / "cli.sock"]
        process.wait_for_answer([*control, "show", "version"], START_S)
        lines = []
        for number in range(run.ports):
            port, mac = f"Ethernet{number}", self.next_hop_mac(number).hex(":")
            lines += [f"set interface ip address {port} 198.18.{number}.1/24", f"set interface ip address {port} 2001:db8:ffff:{number}::1/64"]
            lines += [f"set ip neighbor static {port} 198.18.{number}.2 {mac}", f"set ip neighbor static {port} 2001:db8:ffff:{number}::2 {mac}"]
        script = folder / "ports.cli"
        script.write_text("\n".join(lines) + "\n", encoding="ascii")
        process.tool([*control, "exec", script])
        for rules in run.rules:
            script = folder / f"{Path(rules).name}.cli"
            with open(rules, encoding="ascii") as source, open(script, "w", encoding="ascii") as out:
                for line in source:
                    if line.startswith("R"):
                        prefix, port = line[1:].split()
                        via = f"2001:db8:ffff:{port}::2" if ":" in prefix else f"198.18.{port}.2"
                        out.write(f"ip route add {prefix} via {via} Ethernet{port}\n")
            process.tool([*control, "exec", script])
        script = folder / "up.cli"
        script.write_text("".join(f"set interface state Ethernet{n} up\n" for n in range(run.ports)), encoding="ascii")
        process.tool([*control, "exec", script])


PEERS = {peer.name: peer for peer in (L3fwd, L3fwd256, Testpmd, Grout, Vpp)}
