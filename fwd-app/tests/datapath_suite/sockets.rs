//! Garbage on every socket of a forwarder while packets flow, and routes announced by zebra.
//!
//! The ports send into named pipes. Each frame is compared at once: in the order of the capture, complete, byte for byte.

use crate::forwarder::{Steered, endless_mix};
use crate::rewriter::{ScannedRoute, forward, routes};
use crate::support::{bundled, drops, number, read_pcap};
use crate::test_peers::{fpm_frame, gone_bytes, nobody_says, route_bytes, strangers};
use fib::IpPrefix;
use netlink_packet_route::route::{RouteAttribute, RouteType};
use serde_json::Value;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

const PORTS: usize = 4;
/// Most bytes by which a forwarder may grow under all clients. At most 16 control clients cost a line and a reply each; the FPM listener
/// has at most two connections with a frame of 64 KB each, and 64 reads wait for the control thread.
const GROWTH_MAX: u64 = 64 << 20;

#[derive(Debug, Default)]
struct Sent {
    frames: usize,
    wrong: Option<(usize, Vec<u8>)>,
}

struct Pipes {
    paths: Vec<PathBuf>,
    readers: Vec<JoinHandle<Sent>>,
}

impl Pipes {
    /// Pipes in `folder`. Pipe N must receive the frames `wanted[N]` in a loop, starting with the first one if `from_first`.
    fn new(folder: &Path, wanted: Vec<Vec<Vec<u8>>>, from_first: bool) -> Self {
        let paths: Vec<_> = (0..wanted.len()).map(|port| folder.join(format!("port{port}"))).collect();
        assert!(Command::new("mkfifo").args(&paths).status().unwrap().success());
        let reader = |(path, wanted): (&PathBuf, Vec<Vec<u8>>)| {
            let path = path.clone();
            std::thread::spawn(move || compare(&path, &wanted, from_first))
        };
        let readers = paths.iter().zip(wanted).map(reader).collect();
        Self { paths, readers }
    }

    fn devices(&self, nothing: &Path) -> Vec<String> {
        let device = |(port, pipe): (usize, &PathBuf)| {
            let rx = if port == 0 { endless_mix() } else { format!("rx_pcap={}", nothing.display()) };
            format!("net_pcap{port},{rx},tx_pcap={}", pipe.display())
        };
        self.paths.iter().enumerate().map(device).collect()
    }

    fn end(self) -> Vec<Sent> {
        self.readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    }
}

/// Reads a capture to its end and compares its frames with `wanted` in a loop, starting with the first or with any frame.
fn compare(path: &Path, wanted: &[Vec<u8>], from_first: bool) -> Sent {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).unwrap());
    let (mut header, mut record, mut frame) = ([0; 24], [0; 16], Vec::new());
    let mut sent = Sent::default();
    // Candidates for the first frame, as indices of `wanted`.
    let mut starts: Vec<usize> = if from_first { vec![0] } else { (0..wanted.len()).collect() };
    if file.read_exact(&mut header).is_err() {
        return sent;
    }
    while file.read_exact(&mut record).is_ok() {
        let bytes = u32::from_le_bytes(record[8..12].try_into().unwrap());
        frame.resize(bytes as usize, 0);
        if file.read_exact(&mut frame).is_err() {
            break; // the forwarder was killed
        }
        starts.retain(|start| wanted.get((start + sent.frames) % wanted.len().max(1)) == Some(&frame));
        if starts.is_empty() && sent.wrong.is_none() {
            sent.wrong = Some((sent.frames, frame.clone()));
        }
        sent.frames += 1;
    }
    sent
}

fn fates(routes: &[ScannedRoute]) -> Vec<Option<(usize, Vec<u8>)>> {
    let frames = read_pcap(&bundled("mix.pcap"));
    let fate = |(_, frame): &(u64, Vec<u8>)| {
        let (port, mut out) = forward(frame, routes, 4)?;
        out[6..12].copy_from_slice(&[2, 0x70, 0x63, 0x61, 0x70, u8::try_from(port).unwrap()]);
        Some((port, out))
    };
    frames.iter().map(fate).collect()
}

fn by_port(fates: &[Option<(usize, Vec<u8>)>]) -> Vec<Vec<Vec<u8>>> {
    let mut ports = vec![Vec::new(); PORTS];
    fates.iter().flatten().for_each(|(port, frame)| ports[*port].push(frame.clone()));
    ports
}

fn nothing(folder: &Path) -> PathBuf {
    let path = folder.join("nothing.pcap");
    std::fs::write(&path, &std::fs::read(bundled("mix.pcap")).unwrap()[..24]).unwrap();
    path
}

fn feed<'a>(feeds: &'a Value, kind: &str) -> &'a Value {
    feeds.as_array().unwrap().iter().find(|feed| feed["feed"] == kind).unwrap()
}

fn fpm_address(forwarder: &Steered) -> SocketAddr {
    feed(&forwarder.ask("show feeds"), "fpm")["name"].as_str().unwrap().parse().unwrap()
}

fn announce(prefix: &str, gateway: Option<Ipv4Addr>) -> Vec<u8> {
    let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
    let mut attributes = vec![RouteAttribute::Oif(index.trim().parse().unwrap())];
    attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    fpm_frame(&route_bytes(prefix.parse().unwrap(), RouteType::Unicast, attributes))
}

/// Writes requests without reading replies until the forwarder stops reading. Returns the client and the number of bytes written.
fn one_that_never_reads(socket: &Path) -> (UnixStream, usize) {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let asks = b"{\"line\": \"help\", \"json\": true}\n".repeat(500);
    let mut taken = 0;
    loop {
        match client.write(&asks) {
            Ok(bytes) => taken += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return (client, taken),
        }
        assert!(taken < 16 << 20, "all of it is taken");
    }
}

#[test]
fn garbage_on_every_socket_changes_nothing_for_packets() {
    const STRANGERS: u32 = 10_000;
    let scratch = tempfile::tempdir().unwrap();
    let fates = fates(&routes(&bundled("routes.txt")));
    let pipes = Pipes::new(scratch.path(), by_port(&fates), true);
    let table = bundled("routes.txt");
    let options = ["--fpm", "127.0.0.1:0", "--fib", table.to_str().unwrap(), "--kernel-interface", "1=lo"];
    let devices = pipes.devices(&nothing(scratch.path()));
    let Some(forwarder) = Steered::over(scratch.path(), "garbage", &options, &devices) else { return };
    let sources = forwarder.ask("show config")["sources"].clone();
    assert_eq!(sources, serde_json::json!(["ctl", "fpm", "files"]), "in the order of the command line");
    let address = fpm_address(&forwarder);
    let mut zebra = TcpStream::connect(address).unwrap();
    // No packet of the capture has such a destination.
    zebra.write_all(&announce("240.1.0.0/16", None)).unwrap();
    let zebras_routes = |wanted: u64| {
        forwarder.ask_until("show feeds", |feeds| number(feed(feeds, "fpm"), "/routes") == wanted);
    };
    zebras_routes(1);
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/rx") > 100_000);
    let before = forwarder.resident_bytes();

    let (never_reads, taken) = one_that_never_reads(&forwarder.socket);
    let ctl = || UnixStream::connect(&forwarder.socket).unwrap();
    std::thread::scope(|scope| {
        let asks = b"{\"line\": \"show drops\"}\n{\"line\": \"capture stop\"}\n";
        scope.spawn(|| strangers(STRANGERS, asks, |_| ctl()));
        scope.spawn(|| {
            let mut before: Option<TcpStream> = None;
            strangers(STRANGERS, &announce("240.2.0.0/16", None), |number| {
                let stranger = TcpStream::connect(address).unwrap();
                // Waits until the previous connection is closed, so that they stay within the backlog.
                if let Some(mut before) = before.take().filter(|_| number % 50 == 0) {
                    before.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                    let closed = before.read(&mut [0]);
                    assert!(
                        !closed.is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
                        "not accepted"
                    );
                }
                before = Some(stranger.try_clone().unwrap());
                stranger
            });
        });
    });
    // The user of this connection is known for certain, since it stays open until the forwarder closes it.
    let mut wrong = TcpStream::connect(address).unwrap();
    wrong.write_all(&[0xff; 40]).unwrap();
    wrong.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(!wrong.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "not closed");
    zebra.write_all(&announce("240.3.0.0/16", None)).unwrap();
    zebras_routes(2);
    let is_counted = |feeds: &Value| {
        let (ctl, fpm) = (feed(feeds, "ctl"), feed(feeds, "fpm"));
        number(ctl, "/errors") > 1000
            && number(ctl, "/clients") > u64::from(STRANGERS)
            && number(fpm, "/sessions") + number(fpm, "/peers_refused") == 2 + u64::from(STRANGERS)
            && number(fpm, "/errors") > 0
    };
    forwarder.ask_until("show feeds", is_counted);
    let growth = forwarder.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{growth} bytes more, {taken} taken of the client that reads nothing");
    drop(never_reads);

    let (summary, _) = forwarder.end();
    let dropped = drops(&summary);
    assert!(dropped.iter().all(|(reason, _)| reason == "no_route"), "{dropped:?}");
    let rx = usize::try_from(number(&summary, "/packets/rx")).unwrap();
    for (port, sent) in pipes.end().iter().enumerate() {
        assert_eq!(sent.wrong, None, "port {port}, of {} frames", sent.frames);
        let of_port = |fate: &&Option<(usize, Vec<u8>)>| fate.as_ref().is_some_and(|(to, _)| *to == port);
        let in_one = |fates: &[Option<(usize, Vec<u8>)>]| fates.iter().filter(of_port).count();
        let wanted = rx / fates.len() * in_one(&fates) + in_one(&fates[..rx % fates.len()]);
        assert_eq!(sent.frames, wanted, "port {port}: none is lost");
    }
}

#[test]
fn another_user_of_this_host_announces_no_routes() {
    let scratch = tempfile::tempdir().unwrap();
    let devices = ["net_null0".to_owned(), "net_null1".to_owned()];
    for (option, routes) in [(None, 0), (Some("--fpm-user=nobody"), 1)] {
        let options: Vec<_> =
            ["--fpm", "127.0.0.1:0", "--kernel-interface", "1=lo"].into_iter().chain(option).collect();
        let Some(forwarder) = Steered::over(scratch.path(), "user", &options, &devices) else { return };
        let Some(mut nobody) = nobody_says(fpm_address(&forwarder), &announce("240.2.0.0/16", None)) else {
            return fib::testing::skip("root", "only root can start a process of another user");
        };
        forwarder.ask_until("show feeds", |feeds| {
            let fpm = feed(feeds, "fpm");
            number(fpm, "/routes") == routes && number(fpm, "/peers_refused") == 1 - routes
        });
        forwarder.end();
        nobody.wait().unwrap();
    }
}

#[test]
fn packets_take_the_routes_that_zebra_announces_and_no_file_is_needed() {
    let scratch = tempfile::tempdir().unwrap();
    let mut wanted = by_port(&fates(&[(false, 0, 0, 2)]));
    wanted[1].iter_mut().for_each(|frame| frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]));
    let pipes = Pipes::new(scratch.path(), wanted, false);
    let options = ["--fpm", "127.0.0.1:0", "--kernel-interface", "1=lo"];
    let devices = pipes.devices(&nothing(scratch.path()));
    let Some(forwarder) = Steered::over(scratch.path(), "zebra", &options, &devices) else { return };
    let drops_of = |reason: &str| number(&forwarder.ask("show drops"), &format!("/{reason}"));
    let until_dropped = |reason: &str| {
        let before = drops_of(reason);
        forwarder.ask_until("show drops", |drops| number(drops, &format!("/{reason}")) > before + 10_000);
    };
    until_dropped("no_route");
    assert_eq!(forwarder.ask("show config")["sources"], serde_json::json!(["ctl", "fpm"]));
    assert_eq!(number(&forwarder.ask("show stats"), "/packets/tx"), 0, "the table is empty");

    let mut zebra = TcpStream::connect(fpm_address(&forwarder)).unwrap();
    zebra.write_all(&announce("0.0.0.0/0", Some(Ipv4Addr::new(192, 0, 2, 1)))).unwrap();
    until_dropped("no_neighbour");
    assert_eq!(forwarder.ask("route get 198.51.100.1")["next_hop"], "via 192.0.2.1 dev 1");
    forwarder.ask("neigh add 192.0.2.1 lladdr 02:00:00:00:00:07 dev 1");
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/tx") > 10_000);
    // Lcores see a withdrawn route at different times, but a change of a next hop at once.
    forwarder.ask("neigh del 192.0.2.1");
    until_dropped("no_neighbour");
    zebra.write_all(&fpm_frame(&gone_bytes("0.0.0.0/0".parse::<IpPrefix>().unwrap()))).unwrap();
    forwarder.ask_until("route get 198.51.100.1", |route| route["prefix"].is_null());
    until_dropped("no_route");
    let (summary, _) = forwarder.end();
    let sent = pipes.end();
    let frames: Vec<_> = sent.iter().map(|sent| sent.frames).collect();
    assert_eq!(frames, [0, usize::try_from(number(&summary, "/packets/tx")).unwrap(), 0, 0]);
    assert_eq!(sent[1].wrong, None);
}
