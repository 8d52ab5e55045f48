//! Rates of ports, lcores and VRFs, losses of NICs and own drops; text fits 80 columns.

use crate::forwarder::rates::{LcoreRates, Over, PortRates, Rates, VrfRates};
use fib::units::count_text;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

const NAME_MAX: usize = 16;
const PACKETS_AND_BITS: [&str; 4] = ["pps 1s", "10s", "bps 1s", "10s"];

pub(crate) struct RatesShown(pub(crate) Arc<Rates>);

impl Serialize for RatesShown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

fn row<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    about: &str,
    cells: impl IntoIterator<Item = T>,
) -> fmt::Result {
    write!(f, "{about:<22}")?;
    cells.into_iter().try_for_each(|cell| write!(f, " {cell:>7}"))?;
    f.write_str("\n")
}

/// Rates as text, unknown ones as `-`.
fn texts(rates: impl IntoIterator<Item = Option<f64>>) -> impl Iterator<Item = String> {
    rates.into_iter().map(|rate| rate.map_or_else(|| "-".to_owned(), count_text))
}

/// The end of a name, which distinguishes ports.
fn short(name: &str) -> &str {
    let cut = name.char_indices().rev().nth(NAME_MAX - 1).map_or(0, |(at, _)| at);
    &name[cut..]
}

fn ports_table(f: &mut fmt::Formatter<'_>, ports: &[PortRates]) -> fmt::Result {
    row(f, "port", PACKETS_AND_BITS.into_iter().chain(["missed", "errors", "no mbuf"]))?;
    for PortRates {
        port,
        name,
        rx_pps,
        tx_pps,
        rx_bps,
        tx_bps,
        rx_missed,
        rx_errors,
        rx_nombuf,
        tx_errors,
        ..
    } in ports
    {
        let about = |direction| format!("{port:>2} {:<NAME_MAX$} {direction}", short(name));
        let lost = [rx_missed[0], rx_errors[0], rx_nombuf[0]];
        row(f, &about("rx"), texts(rx_pps.iter().chain(rx_bps).chain(&lost).copied()))?;
        let sent = texts(tx_pps.iter().chain(tx_bps).copied());
        row(f, &about("tx"), sent.chain([String::new()]).chain(texts([tx_errors[0]])))?;
    }
    Ok(())
}

fn lcores_table(f: &mut fmt::Formatter<'_>, lcores: &[LcoreRates]) -> fmt::Result {
    row(f, "lcore", ["busy 1s", "10s", "rx 1s", "10s", "tx 1s", "10s", "drop 1s"])?;
    for LcoreRates { lcore, busy, rx_pps, tx_pps, dropped_pps, .. } in lcores {
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        let packets = texts(rx_pps.iter().chain(tx_pps).chain(&dropped_pps[..1]).copied());
        row(f, &format!("{lcore:>2}"), busy.map(percent).into_iter().chain(packets))?;
    }
    Ok(())
}

fn vrfs_table(f: &mut fmt::Formatter<'_>, vrfs: &[VrfRates]) -> fmt::Result {
    row(f, "vrf", PACKETS_AND_BITS)?;
    for VrfRates { name, rx_pps, rx_bps, .. } in vrfs {
        row(f, name, texts(rx_pps.iter().chain(rx_bps).copied()))?;
    }
    Ok(())
}

fn losses_table(f: &mut fmt::Formatter<'_>, rates: &Rates) -> fmt::Result {
    let of_port = |port: &PortRates| {
        let about = |what| format!("port {} {what}", port.port);
        let PortRates { rx_missed, rx_errors, rx_nombuf, tx_errors, .. } = *port;
        [
            (about("rx_missed"), rx_missed),
            (about("rx_errors"), rx_errors),
            (about("rx_nombuf"), rx_nombuf),
            (about("tx_errors"), tx_errors),
        ]
    };
    let ours = rates.drops.iter().map(|(reason, over)| (reason.name().to_owned(), *over));
    let is_lost = |(_, over): &(String, Over)| over.iter().any(|rate| *rate > Some(0.0));
    let lost: Vec<_> = rates.ports.iter().flat_map(of_port).chain(ours).filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(());
    }
    row(f, "lost", ["1s", "10s"])?;
    lost.into_iter().try_for_each(|(about, over)| row(f, &about, texts(over)))
}

impl fmt::Display for RatesShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = &*self.0;
        let Some(age) = rates.age() else { return f.write_str("there are no counters yet\n") };
        match rates.seconds {
            [Some(short), Some(long)] => {
                let age = age.as_secs_f64();
                writeln!(f, "a second, over {short:.1} s and {long:.1} s, {age:.1} s ago; bits of layer 2")?;
            }
            _ => f.write_str("the first second is not over\n")?,
        }
        ports_table(f, &rates.ports)?;
        lcores_table(f, &rates.lcores)?;
        vrfs_table(f, &rates.vrfs)?;
        losses_table(f, rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::DropReason;
    use std::time::Instant;

    #[test]
    fn the_text_has_what_is_known_in_80_columns() {
        let fast = [Some(14_880_952.0), Some(999_600.0)];
        let port = PortRates {
            name: "0000:03:00.0_representor_vf1".to_owned(),
            rx_pps: fast,
            tx_pps: fast,
            rx_bps: [Some(9.52e9); 2],
            rx_missed: [Some(0.0), Some(12.0)],
            ..PortRates::default()
        };
        let lcore =
            LcoreRates { lcore: 1, busy: [Some(1.0), Some(0.953)], rx_pps: fast, ..LcoreRates::default() };
        let mut rates = Rates {
            made: Some(Instant::now()),
            ports: vec![port],
            lcores: vec![lcore],
            vrfs: vec![VrfRates { name: "default".to_owned(), ..VrfRates::default() }],
            drops: DropReason::ALL.into_iter().map(|reason| (reason, [Some(0.0); 2])).collect(),
            ..Rates::default()
        };
        let shown = RatesShown(Arc::new(rates.clone())).to_string();
        assert!(shown.starts_with("the first second is not over\n"), "{shown}");
        assert!(!shown.contains("no_route"), "{shown}");
        (rates.seconds, rates.drops[6].1) = ([Some(1.0), Some(9.9)], [Some(0.5), Some(100.0)]);
        let shown = RatesShown(Arc::new(rates)).to_string();
        for line in [
            "a second, over 1.0 s and 9.9 s, 0.0 s ago; bits of layer 2",
            "port                    pps 1s     10s  bps 1s     10s  missed  errors no mbuf",
            " 0 _representor_vf1 rx   14.9M   1.00M   9.52G   9.52G       0       -       -",
            " 0 _representor_vf1 tx   14.9M   1.00M       -       -               -",
            " 1                     100.0 %  95.3 %   14.9M   1.00M       -       -       -",
            "port 0 rx_missed             0      12",
            "no_route                  0.50     100",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert_eq!(RatesShown(Arc::default()).to_string(), "there are no counters yet\n");
    }
}
