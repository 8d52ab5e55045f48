//! Random tries in GAMT's encoding, their images in both layouts, and Algorithm 1 in Rust, word by word as in the paper.

use fib::random::Seeded;
use lpm_gpu::gamt::Layout;
use lpm_gpu::host::{HEADER_WORDS, RAW_DEEP};

const NODES_MAX: usize = 24;

/// A leaf-pushed trie: the units of each level, as on the device.
pub(crate) struct RandomTrie {
    strides: Vec<u32>,
    levels: Vec<Vec<u32>>,
}

pub(crate) struct TrieImage {
    pub(crate) words: Vec<u32>,
    pub(crate) header: Vec<u32>,
}

impl RandomTrie {
    /// About a third of the units point to the next level; with `deep`, some leaves have the deep mark.
    pub(crate) fn new(strides: &[u32], deep: bool, random: &mut Seeded) -> Self {
        let mut levels = vec![vec![0; 1 << strides[0]]];
        for level in 0..strides.len() {
            let mut below: Vec<u32> = Vec::new();
            for unit in &mut levels[level] {
                let next = strides.get(level + 1).filter(|stride| below.len() >> **stride < NODES_MAX);
                *unit = match next {
                    Some(stride) if random.u32().is_multiple_of(3) => {
                        let node = below.len();
                        below.resize(node + (1 << stride), 0);
                        u32::try_from(node << 8 | (level + 2)).unwrap()
                    }
                    _ => random.u32() & !0xff | if deep && random.u32().is_multiple_of(2) { 0x80 } else { 0 },
                };
            }
            if below.is_empty() {
                // No unit points to the next level, so later levels are never read; they hold one node each.
                below.resize(strides.get(level + 1).map_or(0, |stride| 1 << stride), 0);
            }
            levels.push(below);
        }
        levels.truncate(strides.len());
        Self { strides: strides.to_vec(), levels }
    }

    /// The image. Words outside all units would mislead a lookup.
    pub(crate) fn image(&self, layout: Layout, key_bits: u32) -> TrieImage {
        let width = self.levels.iter().map(Vec::len).max().unwrap() + 5;
        let mut header = vec![0; HEADER_WORDS];
        let mut words = Vec::new();
        header[0] = u32::try_from(self.strides.len()).unwrap();
        header[2] = key_bits;
        if layout == Layout::Paper {
            header[1] = u32::try_from(width).unwrap();
            words.resize(width, u32::MAX);
        }
        for (level, (stride, units)) in self.strides.iter().zip(&self.levels).enumerate() {
            header[6 + 2 * level] = *stride;
            if layout == Layout::Flat {
                words.resize(words.len() + level * 3, u32::MAX);
                header[7 + 2 * level] = u32::try_from(words.len()).unwrap();
            }
            words.extend_from_slice(units);
            if layout == Layout::Paper {
                words.resize((level + 2) * width, u32::MAX);
            }
        }
        TrieImage { words, header }
    }

    /// A left-aligned key whose lookup goes deeper, on average, than a random key's.
    pub(crate) fn key(&self, random: &mut Seeded) -> u64 {
        let last = random.u64();
        let (mut key, mut taken, mut node) = (0_u64, 0, 0);
        for (stride, units) in self.strides.iter().zip(&self.levels) {
            let mut chunk = 0;
            for _ in 0..4 {
                chunk = random.u64() & ((1 << stride) - 1);
                if units[node + usize::try_from(chunk).unwrap()] & 0x7f != 0 {
                    break;
                }
            }
            key |= chunk << (64 - taken - stride);
            taken += stride;
            let unit = units[node + usize::try_from(chunk).unwrap()];
            if unit & 0x7f == 0 {
                break;
            }
            node = (unit >> 8) as usize;
        }
        key | if taken < 64 { last & (u64::MAX >> taken) } else { 0 }
    }
}

impl TrieImage {
    /// Algorithm 1 on a right-aligned key of the header's bits; returns the raw answer.
    pub(crate) fn lookup(&self, layout: Layout, key: u64) -> u32 {
        let header = &self.header;
        let (mut address, mut len) = (key, header[2]);
        let (mut jump, mut inf, mut code) = (1, 0, 0);
        while jump != 0 && len > 0 {
            let level = jump as usize;
            len -= header[4 + 2 * level];
            inf += u32::try_from(address >> len).unwrap();
            address &= (1 << len) - 1;
            let base = match layout {
                Layout::Paper => header[1] * jump,
                Layout::Flat => header[5 + 2 * level],
            };
            code = self.words[(base + inf) as usize];
            (jump, inf) = (code & 0x7f, code >> 8);
        }
        inf | if code & 0x80 == 0 { 0 } else { RAW_DEEP }
    }
}
