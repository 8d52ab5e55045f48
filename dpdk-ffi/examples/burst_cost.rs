//! Measures the cost of the safe wrappers in nanoseconds a packet (best of many rounds): rings, a pass over headers, scattering.
//!
//! `cargo run --release -p dpdk-ffi --example burst_cost [BURST [EAL ARGUMENTS]]`, e.g. `128 --in-memory --no-pci --iova-mode=va -m 256`
//! with huge pages; without them a burst of 128 touches more pages than the TLB holds, which is most of the cost of a pass.

use std::hint::black_box;
use std::slice::from_ref;

use dpdk_ffi::{
    Burst, DROP, DpdkError, Eal, Mempool, MempoolConfig, PortConfig, QueueId, Ring, RingPort, RingSync,
    SocketId, tsc, tsc_hz,
};

const PACKETS: usize = 4096;
const ROUNDS: usize = 4000;

fn best(eal: &Eal, packets: usize, mut work: impl FnMut()) -> f64 {
    let ticks = (0..ROUNDS).map(|_| {
        let start = tsc();
        work();
        tsc() - start
    });
    let least = ticks.min().unwrap_or(0);
    least as f64 / tsc_hz(eal) as f64 * 1e9 / packets as f64
}

fn main() -> Result<(), DpdkError> {
    let mut args = std::env::args().skip(1);
    let burst_size = args.next().and_then(|size| size.parse().ok()).unwrap_or(128);
    let mut eal_args: Vec<String> = args.collect();
    if eal_args.is_empty() {
        eal_args = ["--no-huge", "-m", "256", "--no-pci", "--no-shconf"].map(String::from).into();
    }
    eal_args.extend([
        "--no-telemetry".into(),
        "--file-prefix".into(),
        format!("fwd-test-{}", std::process::id()),
    ]);
    let eal = Eal::init(&eal_args)?;
    let mut burst = receive_and_send(&eal, burst_size)?;
    passes(&eal, &mut burst);
    scatter(&eal, &mut burst);
    Ok(())
}

/// One port whose RX and TX queue are the same ring, so that sent packets are received again. Returns a burst of them.
fn receive_and_send(eal: &Eal, burst_size: usize) -> Result<Burst, DpdkError> {
    let pool = Mempool::new(eal, "cost", &MempoolConfig::default())?;
    let ring = Ring::new(eal, "cost", 8192, RingSync::SpSc, SocketId::ANY)?;
    let mut fill = Burst::with_capacity(eal, PACKETS);
    pool.copy_burst(&mut fill, &vec![[0x45_u8; 60]; PACKETS])?;
    ring.producer()?.enqueue_burst(&mut fill);
    let port = RingPort::from_rings(eal, "cost", from_ref(&ring), from_ref(&ring), SocketId::ANY)?;
    port.configure(&PortConfig::default(), &[pool])?;
    port.start()?;
    let (mut rx, mut tx) = (port.take_rx_queue(QueueId(0))?, port.take_tx_queue(QueueId(0))?);
    let mut burst = Burst::with_capacity(eal, burst_size);
    let cost = best(eal, PACKETS, || {
        for _ in 0..PACKETS / burst_size {
            rx.rx_burst(&mut burst);
            tx.tx_burst(&mut burst);
        }
    });
    println!("rx + tx, bursts of {burst_size}: {cost:.2} ns a packet");
    rx.rx_burst(&mut burst);
    Ok(burst)
}

fn passes(eal: &Eal, burst: &mut Burst) {
    let read = best(eal, burst.len() * 16, || {
        for _ in 0..16 {
            let mut sum = 0_u32;
            for packet in burst.iter() {
                if let Some(header) = packet.data().first_chunk::<34>() {
                    sum = sum
                        .wrapping_add(u32::from_ne_bytes([header[30], header[31], header[32], header[33]]));
                }
            }
            black_box(sum);
        }
    });
    let write = best(eal, burst.len() * 16, || {
        for _ in 0..16 {
            for i in 0..burst.len() {
                if let Some(header) = burst.data_mut(i).first_chunk_mut::<34>() {
                    header[..12].copy_from_slice(black_box(&[7; 12]));
                    header[22] = header[22].wrapping_sub(1);
                }
            }
        }
    });
    println!("a pass that reads headers: {read:.2}, one that writes them: {write:.2} ns a packet");
}

fn scatter(eal: &Eal, burst: &mut Burst) {
    let count = burst.len();
    let mut outs: Vec<_> = (0..4).map(|_| Burst::with_capacity(eal, count)).collect();
    let mut dropped = Burst::with_capacity(eal, count);
    let mut random = 1_u32;
    let mut draw = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 28) as u16
    };
    let kinds: [(&str, Vec<u16>); 4] = [
        ("one port", vec![2; count]),
        ("4 ports at random", (0..count).map(|_| draw() % 4).collect()),
        ("4 ports in runs of 8", (0..4).cycle().flat_map(|port| [port; 8]).take(count).collect()),
        (
            "4 ports, 1 in 16 dropped",
            (0..count).map(|_| if draw() == 0 { DROP } else { draw() % 4 }).collect(),
        ),
    ];
    for (name, to) in kinds {
        let cost = best(eal, count, || {
            burst.scatter(&to, &mut outs, &mut dropped);
            for out in outs.iter_mut().chain([&mut dropped]) {
                burst.append(out);
            }
        });
        println!("scatter and gather, {name}: {cost:.2} ns a packet");
    }
}
