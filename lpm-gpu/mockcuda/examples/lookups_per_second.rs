//! The interpreter's lookups per second of CPU time on one core: `cargo run --release -p mockcuda --example lookups_per_second`.
//!
//! The keys are looked up by the kernels of `kernels/gamt.ptx` in a random table of 16-8-8 bits in GAMT's flat layout,
//! in which nearly all keys reach the third level.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Arg, Driver};

const KEYS: usize = 1 << 20;

/// CPU time of the process, which other programs hardly affect: only the stream's thread works.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: an out pointer to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() -> Result<(), u32> {
    let driver = Driver::open();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/gamt.ptx"))
        .map_err(|_| 301_u32)?;
    let module = driver.load(&text)?;
    // Level 1: 65,536 units that point to nodes of 256 in level 2, one in eight to a node of level 3.
    let (second, third) = (65_536_u32, 65_536 + 65_536 * 4);
    let mut words = Vec::new();
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u32::try_from(random >> 33).unwrap_or(0)
    };
    words.extend((0..second).map(|i| (i % 1024 * 256) << 8 | 2));
    words.extend(
        (second..third)
            .map(|_| if next() % 8 == 0 { (next() % 256 * 256) << 8 | 3 } else { (next() % 1000) << 8 }),
    );
    words.extend((0..65_536).map(|_| (next() % 1000) << 8));
    let mut header = [0_u32; 128];
    header[0] = 3;
    header[2] = 32;
    (header[6], header[7], header[8], header[9], header[10], header[11]) = (16, 0, 8, second, 8, third);
    let keys: Vec<u32> = (0..KEYS).map(|_| next() << 1 ^ next()).collect();
    let (words, header, keys, raw) =
        (driver.device(&words), driver.device(&header), driver.device(&keys), driver.alloc(4 * KEYS)?);
    let count = u32::try_from(KEYS).map_err(|_| 1_u32)?;
    for name in ["gamt_lookup_v4_flat_frozen", "gamt_lookup_v4_flat_live", "gamt_lookup_v4_paper_live"] {
        let kernel = driver.function(module, name)?;
        for blocks in [8, 132] {
            let begin = cpu_seconds();
            let before = mockcuda::control::mockcuda_instructions();
            let args = [Arg::U64(words), Arg::U64(header), Arg::U64(keys), Arg::U64(raw), Arg::U32(count)];
            driver.launch(kernel, blocks, 256, &args)?;
            driver.finish()?;
            let seconds = cpu_seconds() - begin;
            let instructions = mockcuda::control::mockcuda_instructions() - before;
            let rate = f64::from(count) / seconds / 1e6;
            println!(
                "{name}, {blocks} blocks: {rate:.1} M lookups/s, {:.1} ns a warp instruction",
                seconds * 1e9 / instructions as f64
            );
        }
    }
    Ok(())
}
