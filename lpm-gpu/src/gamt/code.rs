//! The 32-bit code of a unit (GAMT, section 3.1), and Algorithm 1 in plain Rust. A code is `inf << 8 | jump`. Jump 0 is a
//! leaf, whose `inf` is the next hop or its entry. Otherwise jump is the child's level, from 1, and `inf` the child's offset
//! in that level, in units. A trie of 64 bits has at most 64 levels, so bit 7 of jump is free: in a leaf it marks prefixes
//! longer than the bits searched, and `inf` is their group (see `deep`).

use super::options::Layout;
use crate::host::{HEADER_WORDS, RAW_DEEP, RAW_INF};

/// In a leaf's jump code: prefixes longer than the bits searched lie below (IPv6 only).
pub const DEEP: u32 = 0x80;

/// The largest `inf`: 24 bits.
pub const INF_MAX: u32 = RAW_INF;

/// Most units of a level that `inf` can address.
pub const LEVEL_UNITS_MAX: u64 = INF_MAX as u64 + 1;

/// Longest stride of a level that the kernels accept, bits: a node of a longer one would not fit a level.
pub const STRIDE_MAX: u8 = 24;

/// The code that a lookup starts with: it points to the root.
pub const ROOT: u32 = child(0, 1);

/// The code of a leaf.
#[must_use]
pub const fn leaf(inf: u32) -> u32 {
    inf << 8
}

/// The code of a unit that points to the node at `offset` of level `level`, counted from 1.
#[must_use]
pub const fn child(offset: u32, level: u32) -> u32 {
    offset << 8 | level
}

/// The `inf` code.
#[must_use]
pub const fn inf(code: u32) -> u32 {
    code >> 8
}

/// The level that the unit points to; 0 for a leaf.
#[must_use]
pub const fn jump(code: u32) -> u32 {
    code & (DEEP - 1)
}

/// Whether the unit is a leaf.
#[must_use]
pub const fn is_leaf(code: u32) -> bool {
    jump(code) == 0
}

/// Header index of a level's stride; the next word is the level's first word in the flat layout.
#[must_use]
pub const fn stride_at(level: usize) -> usize {
    4 + 2 * level
}

/// Algorithm 1: the raw answer to `key`, left-aligned, in the image of a table with this header. `load` does the loads
/// one at a time, in the kernels' order. The header is not loaded: it is constant while its table is in service.
///
/// # Errors
/// Errors of `load`.
#[expect(clippy::cast_possible_truncation, reason = "a stride is 24 bits at most")]
pub fn search_by<E>(
    header: &[u32; HEADER_WORDS],
    layout: Layout,
    key: u64,
    mut load: impl FnMut(usize) -> Result<u32, E>,
) -> Result<u32, E> {
    let (mut left, mut level, mut inf_code, mut unit) = (key, jump(ROOT), inf(ROOT), 0);
    while level <= header[0] {
        let at = stride_at(level as usize);
        let (stride, base) = (header[at], header[at + 1]);
        let base = match layout {
            Layout::Flat => base,
            Layout::Paper => level * header[1],
        };
        // No level is empty, so the stride is at least 1.
        unit = load((base + inf_code) as usize + (left >> (64 - stride)) as usize)?;
        left <<= stride;
        inf_code = inf(unit);
        level = jump(unit);
        if level == 0 {
            break;
        }
    }
    Ok(inf(unit) | if unit & DEEP == 0 { 0 } else { RAW_DEEP })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(words: &[u32], header: &[u32; HEADER_WORDS], layout: Layout, key: u64) -> u32 {
        let Ok(raw) = search_by::<std::convert::Infallible>(header, layout, key, |at| Ok(words[at]));
        raw
    }

    /// Figure 3: strides {1,3,1}, three levels in rows of eight units.
    fn figure_3() -> (Vec<u32>, [u32; HEADER_WORDS]) {
        let mut words = vec![0; 4 * 8];
        words[8] = leaf(1);
        words[8 + 1] = child(0, 2);
        words[2 * 8] = child(0, 3);
        words[3 * 8] = leaf(2);
        words[3 * 8 + 1] = leaf(5);
        let mut header = [0; HEADER_WORDS];
        (header[0], header[1], header[2]) = (3, 8, 5);
        for (level, stride) in [(1, 1), (2, 3), (3, 1)] {
            header[stride_at(level)] = stride;
        }
        (words, header)
    }

    #[test]
    fn the_paper_s_address_takes_the_paper_s_three_jumps() {
        let (words, header) = figure_3();
        // "unit 1 of level 1, whose code is 2 (0, 2)", "unit 0 of level 2, whose code is 3 (0, 3)", "its code is 1280 (5, 0)"
        assert_eq!([words[8 + 1], words[2 * 8], words[3 * 8 + 1]], [2, 3, 1280]);
        assert_eq!([(inf(2), jump(2)), (inf(3), jump(3)), (inf(1280), jump(1280))], [(0, 2), (0, 3), (5, 0)]);
        assert!(!is_leaf(2) && !is_leaf(3) && is_leaf(1280));
        assert_eq!(search(&words, &header, Layout::Paper, 0b10001 << 59), 5);
        assert_eq!((ROOT, inf(ROOT), jump(ROOT)), (1, 0, 1));
        let mut loads = Vec::new();
        let Ok(_) = search_by::<std::convert::Infallible>(&header, Layout::Paper, 0b10001 << 59, |at| {
            loads.push(at);
            Ok(words[at])
        });
        assert_eq!(
            loads,
            [8 + 1, 2 * 8, 3 * 8 + 1],
            "unit 1 of level 1, unit 0 of level 2, unit 1 of level 3"
        );
        assert_eq!(search(&words, &header, Layout::Paper, 0b10000 << 59), 2);
        assert_eq!(search(&words, &header, Layout::Paper, 0b01111 << 59), 1);
    }

    #[test]
    fn a_code_has_three_bytes_of_inf_and_one_of_jump() {
        let [jump_code, inf_code @ ..] = child(0x00ab_cdef, 0x12).to_le_bytes();
        assert_eq!((jump_code, inf_code), (0x12, [0xef, 0xcd, 0xab]));
        assert_eq!(leaf(INF_MAX) | 0xff, u32::MAX, "no bit is left over");
        assert_eq!((u64::from(INF_MAX) + 1, LEVEL_UNITS_MAX), (16_777_216, 16_777_216));
    }

    #[test]
    fn a_deep_leaf_is_a_leaf_and_says_so() {
        let code = leaf(7) | DEEP;
        assert!(is_leaf(code));
        let mut header = [0; HEADER_WORDS];
        (header[0], header[stride_at(1)]) = (1, 1);
        assert_eq!(search(&[leaf(3), code], &header, Layout::Flat, u64::MAX), RAW_DEEP | 7);
        assert_eq!(search(&[leaf(3), code], &header, Layout::Flat, 0), 3);
    }
}
