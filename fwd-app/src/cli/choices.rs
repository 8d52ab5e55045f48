//! The names of values that an option chooses from, and their `--help` texts.

use crate::harness::stream::StreamWhen;
use crate::notice::LogLevel;
use crate::routes::feeds::running::ForeignRoutes;
use crate::topology::TopologyKind;
use clap::ValueEnum;
use clap::builder::PossibleValue;

impl ValueEnum for TopologyKind {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::RunToCompletion, Self::Pipeline]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::RunToCompletion => "Every lcore takes its queues' packets all the way from RX to TX",
            Self::Pipeline => "RX, engine and TX each on lcores of their own",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl ValueEnum for LogLevel {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Error => "Why something failed",
            Self::Warn => "What is not as it should be",
            Self::Info => "What is done, and how the forwarder is set up",
            Self::Debug => "Details for whoever looks for a fault",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl ValueEnum for ForeignRoutes {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Unreachable, Self::Ignore]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Unreachable => PossibleValue::new("unreachable")
                .help("They are installed as unreachable: packets for a VPN never leave by a port"),
            Self::Ignore => PossibleValue::new("ignore")
                .help("They are left out, and their packets take a shorter route, if there is one"),
        })
    }
}

impl ValueEnum for StreamWhen {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Always, Self::Never]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Auto => PossibleValue::new("auto").help("If its packets have more than 1 GiB"),
            Self::Always => PossibleValue::new("always"),
            Self::Never => PossibleValue::new("never").help("All packets are held in memory"),
        })
    }
}
