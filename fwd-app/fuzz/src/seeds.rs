//! The inputs that fuzzing starts from and that the ordinary tests run: the bundled captures, inputs like those of the parsers'
//! tests, and inputs that earlier campaigns found (`found/TARGET/`).

#[path = "../../../fib/tests/feeds/mrt_writer.rs"]
mod mrt_writer;

use crate::frames::{RIGHT, encoded};
use crate::router;
use fwd_app::testing::read_capture;
use mrt_writer::{as_path, attribute, nlri, octets, origin, peer_index_table, record};
use std::path::{Path, PathBuf};

/// An input and its name.
pub type Seed = (String, Vec<u8>);

/// A folder of this crate.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    // The tests of fwd-app include this file too, with the folder of another crate.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.ends_with("fuzz") { here.join(name) } else { here.join("fuzz").join(name) }
}

/// A file, by its path from the root of the repository.
fn top(path: &str) -> PathBuf {
    folder("../..").join(path)
}

/// The seeds of a target, found inputs last.
///
/// # Panics
/// When a file of the tree is missing.
#[must_use]
pub fn of(target: &str) -> Vec<Seed> {
    let inputs = match target {
        "route_text" => route_text(),
        "route_json" => lines(ROUTE_JSON),
        "l3fwd" => l3fwd(),
        "mrt_table" => mrt_tables(),
        "mrt_updates" => mrt_updates(),
        "captures" => captures(),
        "parse" => frames(&[20, 3, 63, 255]),
        "forward" => [frames(&[2, 20, 3, 63, 255]), frames(&[7, 63, 16, 31, 0])].concat(),
        "arp_ndp" => router_frames(&[]),
        "icmp" => router_frames(&[4, 200]),
        "deltas" => noise(18, 3),
        "host_tables" => noise(9, 5),
        "ctl" => ctl(),
        "fpm" => fpm(),
        "netlink" => netlink(),
        "ptx" => ptx(),
        _ => Vec::new(),
    };
    let mut seeds: Vec<Seed> =
        inputs.into_iter().enumerate().map(|(i, input)| (format!("seed-{i:03}"), input)).collect();
    if let Ok(found) = folder("found").join(target).read_dir() {
        let mut paths: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            seeds.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    seeds
}

/// Writes the seeds of a target to the folder that `FUZZ_SEEDS` names and ends the process; without that variable it does nothing.
///
/// # Panics
/// When they cannot be written.
#[cfg(not(test))]
pub fn write(target: &str) {
    let Some(folder) = std::env::var_os("FUZZ_SEEDS") else { return };
    std::fs::create_dir_all(&folder).unwrap();
    for (number, (_, data)) in of(target).into_iter().enumerate() {
        std::fs::write(Path::new(&folder).join(format!("seed-{number:04}")), data).unwrap();
    }
    std::process::exit(0)
}

/// Each line, and the whole text.
fn lines(text: &str) -> Vec<Vec<u8>> {
    let each = text.lines().map(|line| [line.as_bytes(), b"\n"].concat());
    each.chain([text.as_bytes().to_vec()]).collect()
}

const ROUTE_TEXT: &str = "\
192.0.2.0/24 17
10.0.0.0/8 16777215 # the last id
2001:db8::/32 via fe80::1 dev eth0 proto ra metric 1024 pref medium
default via 198.51.100.1 dev 1
default via fe80::1 dev eth0
198.51.100.0/24 dev 0 proto kernel scope link src 198.51.100.254
blackhole 10.0.0.0/8
unreachable 10.0.0.0/8 metric 4294967295
prohibit default dev lo error -13 pref medium
198.18.0.0/15 via inet6 fe80::3 dev 3 mtu lock 1500
default proto static nexthop via 192.0.2.1 dev 1 weight 1 nexthop via 192.0.2.2 dev 2 weight 1
unicast 10.0.0.0/8 via 192.0.2.1 onlink
R192.0.2.0/24 0
R2001:0db8:0000:0000:0000:0000:0000:0000/32 65535
neigh 192.0.2.1 lladdr 02:00:00:00:00:09 dev 3
neigh 2001:db8::1 dev eth0 lladdr 02:00:00:00:00:09 router REACHABLE
10.0.0.1/8 1
10.0.0.0/33 1
10.0.0.0/8 via x dev 1
";

fn route_text() -> Vec<Vec<u8>> {
    let mut seeds = lines(ROUTE_TEXT);
    seeds.push(b"\xef\xbb\xbf10.0.0.0/8 1\r\n\r\n# c\r\n10.0.0.0/8 2".to_vec());
    seeds.push(
        b"10.0.0.0/8 proto static\n\tnexthop via 198.51.100.3 dev 2 weight 1\n\tnexthop dev 1\n".to_vec(),
    );
    seeds.push(std::fs::read(top("pcap/links.txt")).unwrap());
    seeds.push(std::fs::read(top("pcap/routes.txt")).unwrap()[..1500].to_vec());
    seeds
}

fn l3fwd() -> Vec<Vec<u8>> {
    let rules = "192.0.2.0/24 0\n10.0.0.0/8 65535\n2001:0db8:0000:0000:0000:0000:0000:0000/32 3\n::/0 1\n0.0.0.0/0 2 # all\n";
    [lines(rules), lines("10.0.0.0/8\n10.0.0.0/8 65536\n10.0.0.1/8 1\n10.0.0.0/8 +1\n10.0.0.0/8 1 2\n")]
        .concat()
}

const ROUTE_JSON: &str = r#"[{"dst":"default","gateway":"198.51.100.1","dev":"eth0","protocol":"static","flags":[]}]
[{"type":"blackhole","dst":"192.0.2.0/24"},{"dst":"198.51.100.1","lladdr":"02:00:00:00:00:01","dev":"1"}]
[{"dst":"10.0.0.0/8","id":16777215},{"dst":"10.1.0.0/16","port":3},{"dst":"10.2.0.0/16","dev":"eth1"}]
[{"dst":"10.0.0.0/8","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0"}]
[{"dst":"default","dev":"eth0","pref":"medium","metrics":[{"mtu":1500}]}]
[{"dst":"10.0.0.0/8","nexthops":[{"gateway":"192.0.2.1","dev":"1","weight":1,"flags":[]},{"dev":"2"}]}]
[{"dst":"10.0.0.0/8","encap":"mpls"}]
[][{"dst":"10.0.0.0/8","id":0}]
[{"dst":"10.0.0.1/8","id":1}]
{"dst":"10.0.0.0/8"}
[{"dst":"10.0.0.0/8","id":1,
"#;

const CTL: &str = "\
{\"line\": \"show drops\", \"json\": true}
{\"line\": \"sh po x 0000:03:00.0\"}
{\"line\": \"route add 192.0.2.0/24 via inet6 fe80::1 dev 1 # x\"}
{\"line\": \"route add default blackhole\"}
{\"line\": \"route add default prohibit\"}
{\"line\": \"neigh add 2001:db8::1 dev p0 lladdr 02:00:00:00:00:09\"}
{\"line\": \"clear neigh\"}
{\"line\": \"set engine bloom a=b c=\"}
{\"line\": \"capture drops /tmp/x 18446744073709551615\"}
{\"line\": \"stop --drain\", \"jsn\": 1}
{\"line\": \"s\\u0000\\ntrace +1\"}
{\"line\": \"help rou\", \"json\": true}
route del 2001:db8::/32
set promisc all on
{\"line\": \"quit\"}
start
";

/// Requests of a client, in pieces of 1, 8 and 256 bytes.
fn ctl() -> Vec<Vec<u8>> {
    let seeds =
        [0, 7, 255].into_iter().flat_map(|piece| lines(CTL).into_iter().map(move |seed| (piece, seed)));
    let mut seeds: Vec<Vec<u8>> = seeds.map(|(piece, seed)| [&[piece], &seed[..]].concat()).collect();
    seeds.push([&[254][..], &[b'x'; 65_536], b"\n"].concat());
    seeds.push([&[255][..], &[b'x'; 70_000], b"\n"].concat());
    seeds
}

/// The attributes of an entry: origin, AS path, and a next hop of either family.
fn attributes(path: &[u32], as_bytes: usize, next_hop: &str) -> Vec<u8> {
    let address = octets(next_hop);
    let hop = if address.len() == 4 {
        attribute(3, &address)
    } else {
        attribute(14, &[&[16], &address[..]].concat())
    };
    [origin(), as_path(path, as_bytes), hop].concat()
}

fn mrt_tables() -> Vec<Vec<u8>> {
    let entry = |peer: u16, path_id: Option<u32>, attributes: &[u8]| {
        let length = u16::try_from(attributes.len()).unwrap().to_be_bytes();
        let path_id = path_id.map(u32::to_be_bytes);
        [&peer.to_be_bytes()[..], &[0; 4], path_id.as_ref().map_or(&[][..], |id| id), &length, attributes]
            .concat()
    };
    let rib = |subtype, prefix: &str, entries: &[Vec<u8>]| {
        let count = u16::try_from(entries.len()).unwrap().to_be_bytes();
        record(7, 13, subtype, &[&[0, 0, 0, 7], &nlri(prefix)[..], &count, &entries.concat()].concat())
    };
    let (short, long) = (attributes(&[1, 2], 4, "10.0.0.1"), attributes(&[1, 2, 3], 4, "10.0.0.2"));
    let v6 = attributes(&[1], 4, "2001:db8::7");
    let v4_rib = rib(2, "192.0.2.0/24", &[entry(0, None, &long), entry(1, None, &short)]);
    let v6_rib = rib(4, "2001:db8::/32", &[entry(1, None, &v6)]);
    let with_path_id = rib(8, "192.0.2.0/25", &[entry(0, Some(9), &short)]);
    let v6_with_path_id = rib(10, "2001:db8:1::/48", &[entry(0, Some(9), &v6)]);
    let old = attributes(&[1, 2], 2, "10.0.0.3");
    let old_length = u16::try_from(old.len()).unwrap().to_be_bytes();
    let fields =
        [&[0, 0, 0, 1], &octets("10.0.0.0")[..], &[8, 1, 0, 0, 0, 0], &octets("192.0.2.1"), &[0, 9]].concat();
    let table_dump = record(7, 12, 1, &[&fields[..], &old_length, &old].concat());
    let peers = peer_index_table(2);
    let all = [&peers, &v4_rib, &v6_rib, &with_path_id, &v6_with_path_id].map(Vec::clone).concat();
    let mut cut = all.clone();
    cut.truncate(all.len() - 9);
    vec![
        [peers.clone(), v4_rib.clone()].concat(),
        [peers.clone(), v6_rib].concat(),
        [peers.clone(), with_path_id, v4_rib.clone()].concat(),
        [peers.clone(), v6_with_path_id].concat(),
        [peers.clone(), rib(2, "0.0.0.0/0", &[])].concat(),
        [peers, record(7, 13, 3, &[1, 2, 3])].concat(),
        v4_rib,
        [table_dump.clone(), table_dump].concat(),
        all,
        cut,
    ]
}

fn mrt_updates() -> Vec<Vec<u8>> {
    let update = |withdrawn: &[u8], attributes: &[u8], announced: &[u8]| {
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
        let body = [&length(withdrawn)[..], withdrawn, &length(attributes), attributes, announced].concat();
        let bytes = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
        [&[0xff; 16][..], &bytes, &[2], &body].concat()
    };
    let bgp4mp = |kind, subtype, as_bytes: usize, time: &[u8], message: &[u8]| {
        let asn = &64496_u32.to_be_bytes()[4 - as_bytes..];
        let peers = [octets("192.0.2.1"), octets("192.0.2.255")].concat();
        record(100, kind, subtype, &[time, asn, asn, &[0, 0, 0, 1], &peers, message].concat())
    };
    let v4 = |as_bytes| {
        let attributes = attributes(&[64496, 64497], as_bytes, "192.0.2.7");
        update(&nlri("10.0.0.0/8"), &attributes, &[nlri("11.0.0.0/8"), nlri("12.34.0.0/15")].concat())
    };
    let reach = [&[0, 2, 1, 16][..], &octets("2001:db8::7"), &[0], &nlri("2001:db8:1::/48")].concat();
    let unreach = [&[0, 2, 1][..], &nlri("2001:db8:2::/48")].concat();
    let v6 = update(
        &[],
        &[origin(), as_path(&[1], 4), attribute(14, &reach), attribute(15, &unreach)].concat(),
        &[],
    );
    let keepalive = [&[0xff; 16][..], &[0, 19, 4]].concat();
    let state =
        record(100, 16, 5, &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2]);
    let (two, four) = (bgp4mp(16, 1, 2, &[], &v4(2)), bgp4mp(16, 4, 4, &[], &v4(4)));
    let text = "1546300800.25 a 192.0.2.0/24 2001:db8::1 64496\n0 w 2001:db8::/32 192.0.2.1 0\na 192.0.2.0/24 7 # changed\n a default via 192.0.2.1 dev 3\nw 2001:db8::/32\na R10.0.0.0/8 2\na blackhole 10.0.0.0/8\n";
    let mut seeds = vec![
        two.clone(),
        four.clone(),
        bgp4mp(16, 4, 4, &[], &v6),
        bgp4mp(17, 4, 4, &[0, 3, 0xd0, 0x90], &v4(4)),
        bgp4mp(16, 9, 4, &[], &v4(4)),
        bgp4mp(16, 4, 4, &[], &keepalive),
        [state, two, four].concat(),
    ];
    seeds.extend(lines(text));
    seeds
}

/// What zebra 8.4 has sent; `fwd-app/src/routes/feeds/fpm/README.md` says how it was recorded.
fn zebra() -> Vec<u8> {
    std::fs::read(top("fwd-app/src/routes/feeds/fpm/zebra-8.4.bin")).unwrap()
}

/// The netlink messages of each frame.
fn zebra_frames() -> Vec<Vec<u8>> {
    let (mut frames, bytes) = (Vec::new(), zebra());
    let mut rest = &bytes[..];
    while let Some([_, _, high, low]) = rest.first_chunk() {
        let (frame, behind) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        frames.push(frame[4..].to_vec());
        rest = behind;
    }
    frames
}

/// The recorded stream whole, cut, and frame by frame.
fn fpm() -> Vec<Vec<u8>> {
    let whole = [&[5, 1, 3, 40, 200, 7][..], &zebra()].concat();
    let mut cut = whole.clone();
    cut.truncate(whole.len() - 5);
    let mut wrong = whole.clone();
    wrong[60] ^= 0x40;
    let framed = |messages: Vec<u8>| {
        let len = u16::try_from(4 + messages.len()).unwrap().to_be_bytes();
        [&[2, 2, 9, 1, 1][..], &len, &messages].concat()
    };
    let mut seeds = vec![whole, cut, wrong, vec![0, 1, 1, 0, 3], vec![1, 1, 1, 2, 0, 20]];
    seeds.extend(zebra_frames().into_iter().map(framed));
    seeds
}

/// The recorded messages, each with its neighbour, and the end of a dump.
fn netlink() -> Vec<Vec<u8>> {
    let done =
        [&20_u32.to_ne_bytes()[..], &3_u16.to_ne_bytes(), &[2, 0], &1_u32.to_ne_bytes(), &[0; 8]].concat();
    let frames = zebra_frames();
    let mut seeds: Vec<Vec<u8>> = frames.windows(2).map(<[Vec<u8>]>::concat).collect();
    seeds.extend([frames.concat(), done.repeat(7), [frames.concat(), done].concat()]);
    seeds
}

fn captures() -> Vec<Vec<u8>> {
    let starts = [
        ("mix.pcap", 900),
        ("mix-be.pcap", 700),
        ("mix-ns.pcap", 1200),
        ("mix.pcapng", 1500),
        ("mix-be.pcapng", 1300),
    ];
    let mut seeds: Vec<Vec<u8>> = starts.into_iter().map(|(name, bytes)| start_of(name, bytes)).collect();
    seeds.extend([start_of("links.pcap", 2000), start_of("bad.pcap", 3000), start_of("mix.pcap", 24)]);
    seeds.push(start_of("mix.pcapng", 8000));
    // Raw IP as link type, and a packet whose length exceeds the file.
    let mut raw = start_of("mix.pcap", 400);
    raw[20] = 101;
    let mut lie = start_of("mix.pcap", 400);
    lie[32..36].fill(0xff);
    seeds.extend([raw, lie]);
    seeds
}

fn start_of(name: &str, bytes: usize) -> Vec<u8> {
    let mut content = std::fs::read(top("pcap").join(name)).unwrap();
    content.truncate(bytes);
    content
}

/// Frames of the bundled captures, several in an input, and every template: plain, edited, cut and repeated.
fn frames(plan: &[u8]) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, count, in_a_seed) in [("bad.pcap", 200, 8), ("links.pcap", 60, 12), ("mix.pcap", 96, 24)] {
        let capture = read_capture(&top("pcap").join(name)).unwrap();
        let frames: Vec<_> = capture.frames.iter().map(|(_, frame)| frame).take(count).collect();
        for chunk in frames.chunks(in_a_seed) {
            let chunk = chunk.iter().filter(|frame| frame.len() < 700);
            seeds.push(chunk.fold(plan.to_vec(), |seed, frame| [seed, encoded(frame, 0)].concat()));
        }
    }
    for kind in 1..=6 {
        for (flags, rest) in [
            (RIGHT, &[40][..]),
            (0, &[40]),
            (RIGHT | 0x10, &[40, 33]),
            (RIGHT | 0x10, &[60, 54]),
            (RIGHT | 0x20, &[26, 40]),
            (RIGHT | 0x80, &[187]),
            (RIGHT | 0x80, &[182]),
            (RIGHT | 0x40, &[40, 1, 22, 1, 21, 1]),
            (RIGHT | 0x40, &[40, 0, 33, 9]),
            (RIGHT | 0x40, &[40, 0, 53, 9]),
        ] {
            seeds.push([plan, &[kind | flags], rest].concat());
        }
        // A row of frames of one kind with a wrong frame among them.
        let row = [kind | RIGHT | 0x20, 26, 18];
        seeds.push([plan, &row[..], &[kind, 26], &row[..]].concat());
    }
    seeds
}

/// Each frame that the router reads: as it is, with a long payload, edited, with wrong checksums, on the other port. `before` comes before
/// each. Then, in one input, all of them, after packets for their senders and with time between.
fn router_frames(before: &[u8]) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut all = vec![0x41, 9, 0x41, 0x29, 0x42, 9, 0x41, 77, 0x40, 11];
    for template in 1..=router::TEMPLATES {
        for (flags, rest) in [
            (router::RIGHT, &[0, 0][..]),
            (router::RIGHT, &[255, 0]),
            (router::RIGHT, &[40, 2, 33, 9, 21, 254]),
            (router::RIGHT, &[3, 3, 26, 224, 20, 32, 60, 0]),
            (0, &[0, 1, 41, 77]),
            (router::RIGHT | 0x20, &[0, 0]),
        ] {
            let frame = [before, &[template | flags], rest].concat();
            all.extend([&frame[..], &[0x41, template, 0x40, 33]].concat());
            seeds.push(frame);
        }
    }
    all.extend([0x43, 9, 0x40, 255, 0x40, 255, 0x40, 255]);
    seeds.push(all);
    seeds.extend(noise(6, 4));
    seeds
}

/// Pseudo-random inputs: for each first byte in `0..first`, `each` inputs of increasing length.
fn noise(first: u8, each: u8) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state >> 56).unwrap()
    };
    let seeds = (0..first).flat_map(|number| (0..each).map(move |each| (number, each)));
    seeds
        .map(|(number, each)| {
            std::iter::once(number).chain((0..60 + 90 * u32::from(each)).map(|_| next())).collect()
        })
        .collect()
}

/// The kernels of this repository, each in its own module, and small ones.
fn ptx() -> Vec<Vec<u8>> {
    const HEAD: &str = ".version 6.3\n.target sm_75\n.address_size 64\n";
    let mut seeds = Vec::new();
    for name in ["sail", "gale", "ceilings", "gamt"] {
        let text = std::fs::read_to_string(top("lpm-gpu/kernels").join(format!("{name}.ptx"))).unwrap();
        let head = text.find(".visible .entry").unwrap();
        let entries = text[head..].split(".visible .entry").skip(1);
        let short = entries.filter(|entry| entry.len() < 6000).take(4);
        seeds.extend(short.map(|entry| format!("{HEAD}.visible .entry{entry}")));
    }
    let body = "(\n.param .u64 k_param_0,\n.param .u32 k_param_1\n)\n.maxntid 128, 1, 1\n{\n.reg .pred %p<3>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.shared .align 8 .b8 s[512];\n";
    for code in [
        "ret;",
        "mov.u32 %r3, %tid.x;\nsetp.eq.s32 %p1, %r3, -1;\n@!%p1 bra $L1;\nadd.s32 %r1, %r3, 1;\n$L1:\nret;",
        "ld.param.u64 %rd1, [k_param_0];\ncvta.to.global.u64 %rd2, %rd1;\nld.global.v2.u32 {%r1, %r2}, [%rd2+-4];\nst.global.u32 [%rd2], %r1;\nret;",
        "mov.u32 %r3, s;\nst.shared.u32 [%r3+4], %r1;\nbar.sync 0;\nret;",
        "$L: .branchtargets $A, $B;\nbrx.idx %r1, $L;\n$A:\n$B:\nret;",
        "atom.global.add.u32 %r1, [%rd1], 1;\nshfl.sync.idx.b32 %r1, %r2, 0, 31, -1;\nvote.sync.ballot.b32 %r1, %p1, -1;\nret;",
    ] {
        seeds.push(format!("{HEAD}.visible .entry k{body}{code}\n}}\n"));
    }
    seeds.push(format!("{HEAD}.global .align 4 .u32 x[2] = {{1, -2}};\n.extern .shared .align 4 .b8 dyn[];\n.const .u8 c = 3;\n"));
    seeds.into_iter().map(String::into_bytes).collect()
}
