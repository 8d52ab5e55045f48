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

fn joined<L: Lanes>(lanes: L, (low, high): (L::Vector, L::Vector)) -> Vec<u64> {
    let halves = stored(lanes, low).into_iter().zip(stored(lanes, high));
    halves.map(|(low, high)| u64::from(high) << 32 | u64::from(low)).collect()
}

fn chosen<L: Lanes>(lanes: L, mask: L::Mask) -> Vec<bool> {
    let ones = lanes.select(mask, lanes.splat(1), lanes.splat(0));
    stored(lanes, ones).into_iter().map(|word| word == 1).collect()
}

type Operation<W> = fn(W, <W as Words>::Vector, <W as Words>::Vector, u32) -> <W as Words>::Vector;

fn arithmetic<W: Words>() -> [Operation<W>; 9] {
    [
        |words, a, b, _| words.and(a, b),
        |words, a, b, _| words.or(a, b),
        |words, a, b, _| words.add(a, b),
        |words, a, b, _| words.sub(a, b),
        |words, a, b, _| words.mul(a, b),
        |words, a, _, word| words.shift_left(a, (word % 32).cast_signed()),
        |words, a, _, word| words.shift_right(a, (word % 32).cast_signed()),
        |words, a, b, _| words.shift_left_each(a, words.and(b, words.splat(31))),
        |words, a, b, _| words.shift_right_each(a, words.and(b, words.splat(31))),
    ]
}

fn hashing<W: HashWords>() -> [Operation<W>; 3] {
    [
        |words, a, b, _| words.xor(a, b),
        |words, a, _, word| words.mul_high_by(a, word),
        |words, a, _, word| words.rotate_left(a, (word % 32).cast_signed()),
    ]
}

fn operations_agree<L: Lanes>(lanes: L, of_vectors: &[Operation<L>], of_words: &[Operation<Scalar>]) {
    let mut numbers = SplitMix64(1);
    for _ in 0..1000 {
        let [a, b]: [Vec<u32>; 2] = std::array::from_fn(|_| {
            (0..L::COUNT).map(|_| (numbers.u64() >> 32) as u32 >> (numbers.u64() % 32)).collect()
        });
        // SAFETY: both hold the words of a vector.
        let [x, y] = unsafe { [lanes.load_all(a.as_ptr()), lanes.load_all(b.as_ptr())] };
        for (at, (of_vector, of_word)) in of_vectors.iter().zip(of_words).enumerate() {
            let wanted: Vec<u32> = a.iter().zip(&b).map(|(a, y)| of_word(Scalar, *a, *y, b[0])).collect();
            assert_eq!(stored(lanes, of_vector(lanes, x, y, b[0])), wanted, "operation {at} by {}", b[0]);
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
            assert_eq!(joined(lanes, lanes.gather_wide(wide.as_ptr(), at)), wide[3..3 + L::COUNT]);
        }
    }
}

fn all<L: Lanes>(lanes: L) {
    operations_agree(lanes, &arithmetic(), &arithmetic());
    operations_agree(lanes, &[|lanes, a, b, _| lanes.and_not(a, b)], &[|_, a, b, _| !a & b]);
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
    let lanes = unsafe { Avx512f::new() };
    all(lanes);
    operations_agree(lanes, &hashing(), &hashing());
    operations_agree(lanes, &[|l, a, b, _| l.mul_high(a, b)], &[|w, a, b, _| w.mul_high_by(a, b)]);
    let wide: Vec<u64> = (1..17).map(|at| at << 32 | (1000 + at)).collect();
    for len in 0..=16 {
        let mut wanted = wide[16 - len..].to_vec();
        // SAFETY: the mask has the lanes of these words.
        let [low, high] = unsafe { lanes.load_wide(wanted.as_ptr(), lanes.first(len)) };
        wanted.resize(16, 0);
        assert_eq!(joined(lanes, (lanes.even(low, high), lanes.odd(low, high))), wanted);
    }
}
