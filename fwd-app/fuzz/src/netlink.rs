//! FPM streams and rtnetlink datagrams: garbage is an error and never a panic, and the events do not depend on the cuts.

use fwd_app::testing::{fpm_events, kernel_events};

const HEADER_BYTES: usize = 16;

/// A stream of FPM frames. The first byte of the input is a number of cuts, the next ones are the distances between them.
pub fn fpm(data: &[u8]) {
    let Some((cuts, data)) = data.split_first() else { return };
    let (cuts, stream) = data.split_at(usize::from(cuts % 16).min(data.len()));
    let mut reads = Vec::new();
    let mut rest = stream;
    for cut in cuts {
        let (read, behind) = rest.split_at(usize::from(*cut).min(rest.len()));
        reads.push(read);
        rest = behind;
    }
    reads.push(rest);
    assert_eq!(fpm_events(&[stream]), fpm_events(&reads));
}

/// Messages of the kernel, in one datagram or in one each.
pub fn netlink(data: &[u8]) {
    let mut datagrams = Vec::new();
    let mut rest = data;
    while let Some(len) = rest.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize)
        && (HEADER_BYTES..=rest.len()).contains(&len)
    {
        let (datagram, behind) = rest.split_at(len.next_multiple_of(4).min(rest.len()));
        datagrams.push(datagram);
        rest = behind;
    }
    datagrams.push(rest);
    assert_eq!(kernel_events(&[data]), kernel_events(&datagrams));
}
