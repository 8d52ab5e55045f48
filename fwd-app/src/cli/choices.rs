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
            Self::RunToCompletion | Self::InFlight => {
                "Each lcore processes the packets of its queues from RX to TX"
            }
            Self::Pipeline => "RX, engine and TX run on separate lcores",
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
            Self::Error => "Failures",
            Self::Warn => "Conditions that need attention",
            Self::Info => "Set-up and progress",
            Self::Debug => "Details for troubleshooting",
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
                .help("Install them as unreachable, so that packets for a VPN never leave by a port"),
            Self::Ignore => PossibleValue::new("ignore")
                .help("Leave them out; their packets take the route of a shorter prefix, if one exists"),
        })
    }
}

impl ValueEnum for StreamWhen {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Always, Self::Never]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Auto => PossibleValue::new("auto").help("Stream traces of more than 1 GiB"),
            Self::Always => PossibleValue::new("always").help("Stream every trace"),
            Self::Never => PossibleValue::new("never").help("Hold all packets in memory"),
        })
    }
}
