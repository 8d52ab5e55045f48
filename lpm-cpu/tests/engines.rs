//! Limits, refusals and statistics of the engines.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::{EngineError, EngineOptions, EngineWriter, Isa, Keys, NextHopId, Prefix4, Rib};
use lpm_cpu::{host, sail_b, sail_l, sail_m, sail_u};

type MakeEngine = fn(&EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError>;

const ENGINES: [(&str, MakeEngine); 4] = [
    (sail_b::NAME, sail_b::make),
    (sail_u::NAME, sail_u::make),
    (sail_l::NAME, sail_l::make),
    (sail_m::NAME, sail_m::make),
];

fn with(name: &str, value: &str) -> EngineOptions {
    EngineOptions { parameters: vec![(name.to_owned(), value.to_owned())], ..EngineOptions::default() }
}

fn id(id: u32) -> NextHopId {
    NextHopId::new(id).unwrap()
}

fn lookup(engine: &dyn EngineWriter, key: u32) -> NextHopId {
    let mut answer = [NextHopId::NONE];
    engine.reader(1, 1).unwrap().lookup(Keys::V4(&[key]), &mut answer).unwrap();
    answer[0]
}

#[test]
fn ipv6_routes_are_refused_and_ipv6_keys_have_none() {
    for (name, make) in ENGINES {
        let mut engine = make(&EngineOptions::default()).unwrap();
        assert_eq!(engine.info().name, name);
        let mut rib = Rib::for_engine(engine.as_ref());
        rib.set("10.0.0.0/8".parse().unwrap(), id(7));
        rib.commit_to(engine.as_mut()).unwrap();
        rib.set("10.0.0.0/8".parse().unwrap(), id(8));
        rib.set("2001:db8::/32".parse().unwrap(), id(9));
        rib.set("2001:db8:1::/48".parse().unwrap(), id(10));
        let refused = rib.commit_to(engine.as_mut()).unwrap_err();
        let EngineError::Full { what, used: 2, limit: 0 } = refused else { panic!("{refused}") };
        assert_eq!(what, format!("IPv6 routes ({name} has no IPv6 table)"));
        assert_eq!(lookup(engine.as_ref(), 0x0a00_0001), id(7), "the old table is in service");
        let mut answers = [id(1); 2];
        let mut reader = engine.reader(1, 2).unwrap();
        reader.lookup(Keys::V6 { hi: &[0, 0x2001_0db8 << 32], lo: &[0, 0] }, &mut answers).unwrap();
        assert_eq!(answers, [NextHopId::NONE; 2]);
        rib.set("10.0.0.0/8".parse().unwrap(), id(8));
        rib.commit_to(engine.as_mut()).unwrap();
        assert_eq!(lookup(engine.as_ref(), 0x0a00_0001), id(8), "IPv4 goes on");
    }
}

#[test]
fn parameters_are_checked() {
    for (_, make) in ENGINES {
        assert!(matches!(make(&with("size", "1")), Err(EngineError::Parameter { .. })));
    }
    assert!(sail_l::make(&with("layout", "paper")).is_ok() && sail_l::make(&with("layout", "wide")).is_ok());
    assert!(matches!(
        sail_l::make(&with("layout", "x")),
        Err(EngineError::Parameter { parameter: "layout", .. })
    ));
    assert!(matches!(sail_b::make(&with("layout", "wide")), Err(EngineError::Parameter { .. })));
    let engine =
        sail_b::make(&EngineOptions { isa: Some(Isa::Avx512f), ..EngineOptions::default() }).unwrap();
    assert_eq!(engine.info().isa, Isa::Scalar, "there is no other kernel");
}

/// The paper's layout has 32,767 chunks of level 24, 65,535 of level 32, and 254 next hops.
#[test]
fn what_the_paper_s_layout_has_no_room_for_is_refused() {
    let chunks24: Vec<_> = (0..1 << 15).map(|at| (Prefix4::truncating(at << 16, 17), 1)).collect();
    let chunks32: Vec<_> = (0..1 << 16).map(|at| (Prefix4::truncating(at << 8, 25), 1)).collect();
    let next_hops: Vec<_> = (0..255).map(|at| (Prefix4::truncating(at << 24, 8), at + 1)).collect();
    for (routes, what, used, limit) in [
        (chunks24, "chunk ids of level 24", 32_768, 32_767),
        (chunks32, "chunk ids of level 32", 65_536, 65_535),
        (next_hops, "next hops of sail-l layout=paper, and one for no route", 256, 255),
    ] {
        let mut engine = sail_l::make(&with("layout", "paper")).unwrap();
        let mut wide = sail_l::make(&with("layout", "wide")).unwrap();
        let (mut rib, mut again) = (Rib::plain(), Rib::plain());
        let ((last, next_hop), fit) = routes.split_last().unwrap();
        for (prefix, next_hop) in fit {
            rib.v4.set(*prefix, id(*next_hop));
        }
        rib.commit_to(engine.as_mut()).unwrap();
        rib.v4.set(*last, id(*next_hop));
        let refused = rib.commit_to(engine.as_mut());
        assert_eq!(refused, Err(EngineError::Full { what, used, limit }));
        assert_eq!(engine.stats().routes_v4, fit.len() as u64);
        assert_eq!(lookup(engine.as_ref(), last.address()), NextHopId::NONE, "the old table is in service");
        assert_eq!(lookup(engine.as_ref(), fit[7].0.address()), id(fit[7].1));
        for (prefix, next_hop) in routes.iter() {
            again.v4.set(*prefix, id(*next_hop));
        }
        again.commit_to(wide.as_mut()).unwrap();
        assert_eq!(lookup(wide.as_ref(), last.address()), id(*next_hop));
    }
}

#[test]
fn chunks_are_used_again() {
    for (name, make) in ENGINES.into_iter().chain([(host::NAME, host::make as MakeEngine)]) {
        let mut engine = make(&EngineOptions::default()).unwrap();
        let mut rib = Rib::plain();
        let mut bytes = Vec::new();
        for round in 0..50_u32 {
            for at in 0..100_u32 {
                let block = |round: u32| (round * 100 + at).wrapping_mul(0x9e37_79b9);
                rib.v4.set(Prefix4::truncating(block(round), 26 + (at % 7) as u8), id(at + 1));
                rib.v4.set(Prefix4::truncating(block(round) ^ 0xffff, 18 + (at % 7) as u8), id(at + 1));
                if round > 0 {
                    let gone = block(round - 1);
                    rib.v4.set(Prefix4::truncating(gone, 26 + (at % 7) as u8), NextHopId::NONE);
                    rib.v4.set(Prefix4::truncating(gone ^ 0xffff, 18 + (at % 7) as u8), NextHopId::NONE);
                }
            }
            rib.commit_to(engine.as_mut()).unwrap();
            bytes.push(engine.stats().table_bytes);
        }
        assert_eq!(bytes[49], bytes[9], "{name}: {bytes:?}");
    }
}

#[test]
fn writes_are_counted() {
    for (name, make) in ENGINES {
        let mut engine = make(&EngineOptions::default()).unwrap();
        let mut rib = Rib::plain();
        let mut figures = |prefix: &str, next_hop: NextHopId| {
            rib.set(prefix.parse().unwrap(), next_hop);
            rib.commit_to(engine.as_mut()).unwrap();
            let details = engine.stats().details;
            let figure = |name: &str| details.get(name).unwrap();
            [figure("sail_updates"), figure("sail_onchip_writes"), figure("sail_offchip_writes")]
        };
        let seen = [
            figures("10.0.0.0/19", id(1)),
            figures("10.0.0.0/19", id(2)),
            figures("10.0.1.128/25", id(3)),
            figures("10.0.1.128/25", NextHopId::NONE),
            figures("10.0.0.0/19", NextHopId::NONE),
        ];
        let right: [[u32; 3]; 5] = match name {
            // One entry and one bit; a chunk of 128 words, then half of it twice.
            "sail-b" => [[1, 1, 1], [2, 1, 2], [3, 2, 2 + 128 + 1 + 64], [4, 3, 195 + 64], [5, 4, 259]],
            // 32 entries and the 32 bits of one word.
            "sail-u" => {
                [[1, 1, 16], [2, 1, 32], [3, 1, 32 + 128 + 1 + 64], [4, 1, 225 + 64 + 1], [5, 2, 290]]
            }
            // As `sail-l`, but C24 is a separate word off chip, and B24 is on chip.
            "sail-m" => {
                [[1, 5, 16], [2, 5, 32], [3, 6, 32 + 128 + 1 + 64], [4, 7, 225 + 64], [5, 8, 289 + 16]]
            }
            // A chunk of level 24: its B24 and the entry of BCN on chip; its entries off chip were 0 already.
            _ => [[1, 5, 16], [2, 5, 32], [3, 6, 32 + 128 + 64], [4, 7, 224 + 64], [5, 8, 288 + 16]],
        };
        assert_eq!(seen, right.map(|row| row.map(f64::from)), "{name}");
    }
}
