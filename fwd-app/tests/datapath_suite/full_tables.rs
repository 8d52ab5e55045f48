//! Full-size tables: a million packets of both families, verified against the oracle.

use crate::support::{number, replay, v4_frame, v6_frame, write_pcap};
use fib::random::SplitMix64;
use fib::testing::{data, load};

#[test]
fn a_million_packets_of_both_families() {
    let Some(files) = data(["v4-202401.txt.xz", "v6-202401.txt.xz"]) else { return };
    let rib = load(&files);
    let (v4, v6) = (rib.v4.sorted(), rib.v6.sorted());
    let mut state = SplitMix64(11);
    let mut frames = Vec::new();
    while frames.len() < 50_000 {
        let at = usize::try_from(state.u64() >> 1).unwrap();
        let size = [60, 64, 128, 512, 1514][at % 5];
        if state.u64().is_multiple_of(2) {
            let prefix = v4[at % v4.len()].0;
            let host = u32::try_from(state.u64() >> 32).unwrap();
            let key = prefix.address() | host.checked_shr(u32::from(prefix.len())).unwrap_or(0);
            frames.push(v4_frame(0xc000_0201, key, size, &[]));
        } else {
            let prefix = v6[at % v6.len()].0;
            let host = u128::from(state.u64()) << 64 | u128::from(state.u64());
            let key = prefix.address() | host.checked_shr(u32::from(prefix.len())).unwrap_or(0);
            frames.push(v6_frame(0x2001_0db8 << 96 | 1, key, size, &[]));
        }
    }
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace.pcap");
    write_pcap(&trace, &frames);
    for extra in [
        &["--topology", "run-to-completion", "--batch", "256", "--engine", "bloom"][..],
        &["--topology", "pipeline", "--batch", "32", "--lcores", "3", "--engine", "bloom"],
        &["--topology", "run-to-completion", "--batch", "256", "--engine", "miht"],
    ] {
        let second = files[1].to_str().unwrap();
        let common = ["--fib", second, "--verify", "--loops", "20"];
        let Some(summary) = replay(&trace, &files[0], &[extra, &common].concat()) else { return };
        assert_eq!(number(&summary, "/packets/rx"), 1_000_000);
        assert_eq!(number(&summary, "/verify/checked"), 1_000_000);
        assert!(number(&summary, "/packets/tx") > 900_000);
    }
}
