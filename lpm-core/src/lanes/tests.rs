//! Vector operations against the same operations on single words.

use super::*;
use fib::Isa;
use fib::random::SplitMix64;

fn stored<L: Lanes>(lanes: L, words: L::Vector) -> Vec<u32> {
    let mut out = vec![0; L::COUNT];
    // SAFETY: `out` has the words of a vector.
    unsafe { lanes.store_all(out.as_mut_ptr(), words) };
    out
}

fn chosen<L: Lanes>(lanes: L, mask: L::Mask) -> Vec<bool> {
    let ones = lanes.select(mask, lanes.splat(1), lanes.splat(0));
    stored(lanes, ones).into_iter().map(|word| word == 1).collect()
}

fn arithmetic_is_that_of_single_words<L: Lanes>(lanes: L) {
    type Operation<W> = fn(W, <W as Words>::Vector, <W as Words>::Vector) -> <W as Words>::Vector;
    fn operations<W: Words>() -> [Operation<W>; 9] {
        [W::and, W::and_not, W::or, W::xor, W::add, W::sub, W::mul, W::mul_high, |words, a, b| {
            let b = words.and(b, words.splat(31));
            words.xor(words.shift_left_each(a, b), words.shift_right_each(words.splat(u32::MAX), b))
        }]
    }
    fn by_word<W: Words>(words: W, a: W::Vector, word: u32) -> [W::Vector; 4] {
        let bits = 1 + (word % 31).cast_signed();
        [
            words.mul_high_by(a, word),
            words.shift_left(a, bits),
            words.shift_right(a, bits),
            words.rotate_left(a, bits),
        ]
    }
    let mut numbers = SplitMix64(1);
    for _ in 0..1000 {
        let [a, b]: [Vec<u32>; 2] = std::array::from_fn(|_| {
            (0..L::COUNT).map(|_| (numbers.u64() >> 32) as u32 >> (numbers.u64() % 32)).collect()
        });
        // SAFETY: both hold the words of a vector.
        let [x, y] = unsafe { [lanes.load_all(a.as_ptr()), lanes.load_all(b.as_ptr())] };
        for (at, (vector, word)) in operations::<L>().into_iter().zip(operations::<Scalar>()).enumerate() {
            let wanted: Vec<u32> = a.iter().zip(&b).map(|(a, b)| word(Scalar, *a, *b)).collect();
            assert_eq!(stored(lanes, vector(lanes, x, y)), wanted, "operation {at}");
        }
        for (at, found) in by_word(lanes, x, b[0]).into_iter().enumerate() {
            let wanted: Vec<u32> = a.iter().map(|a| by_word(Scalar, *a, b[0])[at]).collect();
            assert_eq!(stored(lanes, found), wanted, "operation {at} by {}", b[0]);
        }
    }
}

fn masks_choose_lanes<L: Lanes>(lanes: L) {
    let count = u32::try_from(L::COUNT).unwrap();
    let up: Vec<u32> = (0..count).collect();
    // SAFETY: `up` holds the words of a vector.
    let words = unsafe { lanes.load_all(up.as_ptr()) };
    for len in 0..=count + 1 {
        let first = lanes.first(len as usize);
        let of = |wanted: fn(u32) -> bool, among: u32| -> Vec<bool> {
            up.iter().map(|lane| *lane < among && wanted(*lane)).collect()
        };
        assert_eq!(chosen(lanes, first), of(|_| true, len));
        assert_eq!(chosen(lanes, lanes.zeros(first, words)), of(|lane| lane == 0, len));
        assert_eq!(chosen(lanes, lanes.non_zeros(first, words)), of(|lane| lane != 0, len));
        assert_eq!(chosen(lanes, lanes.equal(first, words, lanes.splat(3))), of(|lane| lane == 3, len));
        assert_eq!(chosen(lanes, lanes.both(first, lanes.at_least(words, 4))), of(|lane| lane >= 4, len));
        let few = lanes.both(first, lanes.equal(lanes.first(2), words, words));
        assert_eq!(chosen(lanes, lanes.either(few, lanes.first(1))), of(|_| true, len.clamp(1, 2)));
        assert_eq!(lanes.any(first), len > 0);
        let negative = lanes.select(first, lanes.splat(1 << 31), lanes.splat(1));
        assert_eq!(chosen(lanes, lanes.signs(negative)), of(|_| true, len));
    }
}

fn loads_and_stores_keep_to_their_lanes<L: Lanes>(lanes: L) {
    let table: Vec<u32> = (100..200).collect();
    let wide: Vec<u64> = (0..100).map(|at| at << 32 | (1000 + at)).collect();
    for len in 0..=L::COUNT {
        let (words, mask) = (&table[..len], lanes.first(len));
        let mut out = vec![7; L::COUNT];
        // SAFETY: the mask has the lanes of `words` and `out`; the indices gathered are below 100.
        unsafe {
            let loaded = lanes.load(words.as_ptr(), mask);
            let filled = lanes.select(mask, loaded, lanes.splat(0));
            assert_eq!(stored(lanes, loaded), stored(lanes, filled), "other lanes are 0");
            lanes.store(out.as_mut_ptr(), mask, loaded);
            assert_eq!(&out[..len], words);
            assert!(out[len..].iter().all(|word| *word == 7), "other lanes are not written");

            let at = lanes.sub(lanes.load_all(table.as_ptr().add(3)), lanes.splat(100));
            let wanted = |scale: usize, bits: u32| -> Vec<u32> {
                let byte = |at: usize| (3 + at) * scale;
                let bytes: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
                let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[byte(at) + i]));
                (0..L::COUNT).map(|lane| if lane < len { word(lane) } else { bits }).collect()
            };
            let other = lanes.splat(5);
            let base = table.as_ptr().cast();
            assert_eq!(stored(lanes, lanes.gather::<4>(base, at, mask, other)), wanted(4, 5));
            assert_eq!(stored(lanes, lanes.gather::<2>(base, at, mask, other)), wanted(2, 5));
            assert_eq!(stored(lanes, lanes.gather_all(base.cast(), at)), &table[3..3 + L::COUNT]);
            let (low, high) = lanes.gather_wide(wide.as_ptr(), at);
            let halves: Vec<u64> = (stored(lanes, low).into_iter().zip(stored(lanes, high)))
                .map(|(low, high)| u64::from(high) << 32 | u64::from(low))
                .collect();
            assert_eq!(halves, wide[3..3 + L::COUNT]);
        }
    }
}

fn all<L: Lanes>(lanes: L) {
    arithmetic_is_that_of_single_words(lanes);
    masks_choose_lanes(lanes);
    loads_and_stores_keep_to_their_lanes(lanes);
}

#[test]
fn avx2_computes_as_single_words() {
    if !Isa::Avx2.is_available() {
        return fib::testing::skip("avx2", "this CPU has no avx2");
    }
    // SAFETY: AVX2 was detected above.
    all(unsafe { Avx2::new() });
}

#[test]
fn avx512f_computes_as_single_words() {
    if !Isa::Avx512f.is_available() {
        return fib::testing::skip("avx512f", "this CPU has no avx512f");
    }
    // SAFETY: AVX-512F was detected above.
    all(unsafe { Avx512f::new() });
}
