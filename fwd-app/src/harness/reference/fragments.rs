//! Reference fragmentation: RFC 791 3.2, "An Example Fragmentation Procedure", step by step on copies of whole packets.

/// "IF DF = 1 THEN discard the datagram". A packet that ends beyond the longest datagram may not be fragmented either.
pub(super) fn may_fragment(head: &[u8], ip_bytes: usize, mtu_bytes: usize) -> bool {
    let (header_bytes, end) = (header_bytes(head), offset(head) * 8 + ip_bytes);
    head[0] >> 4 == 4 && head[6] & 0x40 == 0 && end - header_bytes <= 65_535 && mtu_bytes >= header_bytes + 8
}

fn header_bytes(packet: &[u8]) -> usize {
    usize::from(packet[0] % 16) * 4
}

fn offset(packet: &[u8]) -> usize {
    usize::from(packet[6] % 32) * 256 + usize::from(packet[7])
}

pub(super) fn fragments(packet: &[u8], mtu_bytes: usize) -> Vec<Vec<u8>> {
    // "IF TL =< MTU THEN Submit this datagram to the next step in datagram processing"
    if packet.len() <= mtu_bytes || !may_fragment(packet, packet.len(), mtu_bytes) {
        return vec![packet.to_vec()];
    }
    let (header_bytes, flags, offset) = (header_bytes(packet), packet[6] >> 5, offset(packet));
    // "NFB <- (MTU-IHL*4)/8"
    let blocks = (mtu_bytes - header_bytes) / 8;
    let first = [&packet[..header_bytes], &packet[header_bytes..header_bytes + blocks * 8]].concat();
    let mut options = Vec::new();
    let mut at = 20;
    while at < header_bytes && packet[at] != 0 {
        let end = match packet[at] {
            1 => at + 1,
            _ => at + packet.get(at + 1).map_or(0, |bytes| usize::from(*bytes)),
        };
        // "Selectively copy the internet header (some options are not copied)"; a malformed option ends them.
        if end > header_bytes || (packet[at] != 1 && end < at + 2) {
            break;
        }
        if packet[at] >= 128 {
            options.extend_from_slice(&packet[at..end]);
        }
        at = end;
    }
    options.resize(options.len().div_ceil(4) * 4, 0);
    let mut rest = [&packet[..20], &options, &packet[header_bytes + blocks * 8..]].concat();
    rest[0] = 0x45 + u8::try_from(options.len() / 4).unwrap_or(0);
    let first = corrected(first, flags | 1, offset);
    let rest = corrected(rest, flags, offset + blocks);
    let mut all = vec![first];
    all.extend(fragments(&rest, mtu_bytes));
    all
}

/// "Correct the header fields: IHL, TL, MF, FO; Recompute Checksum"
fn corrected(mut packet: Vec<u8>, flags: u8, offset: usize) -> Vec<u8> {
    let header_bytes = usize::from(packet[0] % 16) * 4;
    let [.., high, low] = packet.len().to_be_bytes();
    packet[2..4].copy_from_slice(&[high, low]);
    let [.., high, low] = offset.to_be_bytes();
    packet[6..8].copy_from_slice(&[flags << 5 | high, low]);
    super::set_checksum(&mut packet, header_bytes);
    packet
}
