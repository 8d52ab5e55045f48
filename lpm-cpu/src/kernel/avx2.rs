//! The AVX2 kernels, for CPUs without AVX-512.

use super::{PIECE, sail, scalar};
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::OverlayTable;
use fib::{Fibs, NextHopId};
use lpm_core::lanes::{Avx2, Lanes};

kernels!(Avx2, "avx2,popcnt,lzcnt,bmi1,bmi2");
