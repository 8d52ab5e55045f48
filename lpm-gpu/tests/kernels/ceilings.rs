//! The benchmark kernels load exactly the words that they report.

use crate::{KernelRig, LIMIT};
use lpm_gpu::cu::{Arg, Shape};

/// The finaliser of MurmurHash3, as in the kernels.
fn mix(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
    x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
    x ^ x >> 16
}

const WORDS_BITS: u32 = 12;
const SHAPE: Shape = Shape::new(3, 64);
const THREADS: u32 = 3 * 64;

fn run(rig: &mut KernelRig, entry: &str, words: &[u32], bits: u32, seed: u32, rounds: u32) -> Vec<u32> {
    let kernel = rig.kernel("ceilings", entry);
    let there = rig.upload(words);
    let sums = rig.upload(&vec![0_u32; THREADS as usize]);
    let args =
        &mut [Arg::buffer(&there), Arg::u32(bits), Arg::u32(seed), Arg::u32(rounds), Arg::buffer(&sums)];
    rig.stream.launch(&kernel, SHAPE, args).unwrap();
    rig.stream.finish(LIMIT).unwrap();
    rig.download(&sums)
}

fn words() -> Vec<u32> {
    (0..1 << WORDS_BITS).map(|i: u32| mix(i + 77)).collect()
}

#[test]
fn words_are_filled() {
    let Some(mut rig) = KernelRig::new(31) else { return };
    let kernel = rig.kernel("ceilings", "fill_words");
    for count in [0, 1, 33, 4096] {
        let there = rig.upload(&vec![7_u32; 4096]);
        let args = &mut [Arg::buffer(&there), Arg::u32(count), Arg::u32(5)];
        rig.stream.launch(&kernel, SHAPE, args).unwrap();
        rig.stream.finish(LIMIT).unwrap();
        let wanted: Vec<u32> = (0..4096).map(|i| if i < count { mix(i + 5) } else { 7 }).collect();
        assert_eq!(rig.download(&there), wanted, "{count}");
    }
}

#[test]
fn loads_are_spread_over_all_elements_and_added_up() {
    let Some(mut rig) = KernelRig::new(32) else { return };
    let words = words();
    for width in [1_u32, 2, 4] {
        let bits = WORDS_BITS - width.ilog2();
        let mut touched = vec![false; 1 << bits];
        for rounds in [0, 1, 9] {
            let wanted: Vec<u32> = (0..THREADS)
                .map(|thread| {
                    (0..4 * rounds).fold(0_u32, |sum, load| {
                        let number = 0xffff_ff00_u32.wrapping_add(thread).wrapping_add(load * THREADS);
                        let element = (mix(number) >> (32 - bits)) as usize;
                        touched[element] = true;
                        let first = element * width as usize;
                        words[first..first + width as usize]
                            .iter()
                            .fold(sum, |sum, word| sum.wrapping_add(*word))
                    })
                })
                .collect();
            for kind in ["frozen", "live"] {
                let entry = format!("gather_{}_{kind}", 4 * width);
                assert_eq!(
                    run(&mut rig, &entry, &words, bits, 0xffff_ff00, rounds),
                    wanted,
                    "{entry}, {rounds}"
                );
            }
        }
        // 7680 random loads miss about exp(-7680 / elements) of the elements: a seventh of 4096.
        let share = touched.iter().filter(|&&is| is).count() as f64 / touched.len() as f64;
        assert!(share > 0.8, "{share} of the elements of {width} words were loaded");
    }
}

#[test]
fn a_chase_goes_where_the_words_lead() {
    let Some(mut rig) = KernelRig::new(33) else { return };
    let words = words();
    for steps in [0, 1, 100] {
        let wanted: Vec<u32> = (0..THREADS)
            .map(|thread| {
                let (mut number, mut sum) = (thread + 3, 0_u32);
                for _ in 0..steps {
                    let word = words[(mix(number) >> (32 - WORDS_BITS)) as usize];
                    sum = sum.wrapping_add(word);
                    number = number.wrapping_add(word);
                }
                sum
            })
            .collect();
        assert_eq!(run(&mut rig, "chase", &words, WORDS_BITS, 3, steps), wanted, "{steps}");
    }
}
