//! The AVX-512F kernels for Knights Landing: F and CD alone, no BW, DQ or VL instruction.

use super::{PIECE, sail, scalar};
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::OverlayTable;
use fib::{Fibs, NextHopId};
use lpm_core::lanes::{Avx512f, Lanes};

kernels!(Avx512f, "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2");
