//! The committed kernels load, and GAMT's return the right next hops in all their forms.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Arg, Driver};
use std::path::Path;

fn ptx(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels").join(name)).unwrap()
}

#[test]
fn every_committed_module_loads() {
    let driver = Driver::open();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "ptx") {
            driver
                .load(&std::fs::read_to_string(&file).unwrap())
                .unwrap_or_else(|code| panic!("{}: {code}", file.display()));
            count += 1;
        }
    }
    assert!(count >= 3, "{count} modules");
}

/// A trie as in figure 3: three levels with strides 1, 3, 1 (GAMT, section 3.1), for keys whose first 5 bits count. The
/// flat form stores the levels contiguously; the paper's form has rows of 16 units.
struct Figure {
    header: [u32; 128],
    flat: Vec<u32>,
    paper: Vec<u32>,
}

fn figure() -> Figure {
    let unit = |inf: u32, jump: u32| inf << 8 | jump;
    let levels: [Vec<u32>; 3] = [
        vec![unit(0, 2), unit(8, 2)],
        (0..16).map(|i| if i % 5 == 0 { unit(i / 5 * 2, 3) } else { unit(100 + i, 0) }).collect(),
        (0..8).map(|i| unit(5 + i, 0)).collect(),
    ];
    let mut header = [0; 128];
    (header[0], header[1], header[2]) = (3, 16, 32);
    let (mut flat, mut paper) = (Vec::new(), vec![0; 4 * 16]);
    for (l, (units, stride)) in levels.iter().zip([1, 3, 1]).enumerate() {
        (header[6 + 2 * l], header[7 + 2 * l]) = (stride, u32::try_from(flat.len()).unwrap());
        paper[(l + 1) * 16..(l + 1) * 16 + units.len()].copy_from_slice(units);
        flat.extend(units);
    }
    Figure { header, flat, paper }
}

/// Algorithm 1, one key at a time.
fn expected(figure: &Figure, key: u32) -> u32 {
    let (mut unit, mut at) = (1, 0);
    while unit & 0x7f != 0 {
        let (level, inf) = (unit & 0x7f, unit >> 8);
        let stride = figure.header[4 + 2 * level as usize];
        let index = (key << at) >> (32 - stride);
        unit = figure.flat[(figure.header[5 + 2 * level as usize] + inf + index) as usize];
        at += stride;
    }
    unit >> 8
}

#[test]
fn gamt_looks_up_in_both_layouts() {
    let driver = Driver::open();
    let module = driver.load(&ptx("gamt.ptx")).unwrap();
    let figure = figure();
    let keys: Vec<u32> = (0..4099_u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let answers: Vec<u32> = keys.iter().map(|key| expected(&figure, *key)).collect();
    let (header, keys_at) = (driver.device(&figure.header), driver.device(&keys));
    for layout in ["flat", "paper"] {
        let words = driver.device(if layout == "flat" { &figure.flat } else { &figure.paper });
        for loads in ["frozen", "live"] {
            let kernel = driver.function(module, &format!("gamt_lookup_v4_{layout}_{loads}")).unwrap();
            for (blocks, threads, count) in
                [(1, 32, 1), (1, 32, 3), (2, 64, 255), (3, 96, 4096), (132, 256, 4099)]
            {
                let raw = driver.alloc(4 * count).unwrap();
                let args = [
                    Arg::U64(words),
                    Arg::U64(header),
                    Arg::U64(keys_at),
                    Arg::U64(raw),
                    Arg::U32(u32::try_from(count).unwrap()),
                ];
                driver.launch(kernel, blocks, threads, &args).unwrap();
                assert_eq!(
                    driver.download::<u32>(raw, count).unwrap(),
                    answers[..count],
                    "{layout} {loads} {count}"
                );
                driver.free(raw).unwrap();
            }
        }
    }
}

#[test]
fn write_words_writes_each_once() {
    let driver = Driver::open();
    let module = driver.load(&ptx("gamt.ptx")).unwrap();
    let kernel = driver.function(module, "write_words").unwrap();
    let words = driver.device(&[0_u32; 1000]);
    let writes: Vec<[u32; 2]> = (0..500_u32).map(|i| [i * 2, i + 1]).collect();
    let at = driver.device(&writes);
    driver.launch(kernel, 2, 64, &[Arg::U64(words), Arg::U64(at), Arg::U32(500)]).unwrap();
    let out = driver.download::<u32>(words, 1000).unwrap();
    assert!((0..1000_u32).zip(out).all(|(i, word)| word == if i % 2 == 0 { i / 2 + 1 } else { 0 }));
    assert_eq!(mockcuda::control::mockcuda_words_written(), 500);
}
