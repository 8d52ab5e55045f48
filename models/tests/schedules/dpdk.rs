//! A burst of packets and the time stamp counter, without DPDK.

use crate::sync::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Burst(pub(crate) Vec<u32>);

impl Burst {
    pub(crate) const CAPACITY: usize = 2;

    pub(crate) fn capacity(&self) -> usize {
        Self::CAPACITY
    }
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A clock that advances with every read.
pub(crate) fn tsc() -> u64 {
    Instant::now().as_micros()
}

/// The parts of batches that vector kernels need.
pub(crate) mod simd {
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Kind;
    pub(crate) const PAD: usize = 0;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct LengthOrMark(pub(crate) u32);

    impl LengthOrMark {
        pub(crate) const fn length(ip_bytes: u32) -> Self {
            Self(ip_bytes)
        }
        pub(crate) const fn mark(mark: u8) -> Self {
            Self(1 << 31 | mark as u32)
        }
        pub(crate) const fn get(self) -> Result<u32, u8> {
            if self.0 >> 31 == 0 { Ok(self.0) } else { Err(self.0.to_le_bytes()[0]) }
        }
    }

    #[derive(Debug)]
    pub(crate) struct AlignedArray<T>(Vec<T>);

    impl<T: Copy> AlignedArray<T> {
        pub(crate) fn new(value: T, len: usize) -> Self {
            Self(vec![value; len])
        }
    }

    impl<T> std::ops::Deref for AlignedArray<T> {
        type Target = [T];
        fn deref(&self) -> &[T] {
            &self.0
        }
    }

    impl<T> std::ops::DerefMut for AlignedArray<T> {
        fn deref_mut(&mut self) -> &mut [T] {
            &mut self.0
        }
    }
}
