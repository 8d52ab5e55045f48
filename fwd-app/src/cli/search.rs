//! The options of a search for a rate.

use super::values;
use crate::harness::trials::search::SearchRules;
use crate::harness::{OfferedRate, SearchSpec};
use clap::Args;
use std::time::Duration;

/// Search for the highest rate that the forwarder sustains.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchArgs {
    /// Find the highest rate whose loss stays within a limit: `loss=0`, `loss=0.1%` or several
    ///
    /// Several limits share their trials (draft-ietf-bmwg-mlrsearch). Packets count as lost if they find no room in the forwarder, or are
    /// dropped as tx_full or engine_stall. The result is the rate of a software path over rings in memory, not of RFC 2544 on a wire.
    #[arg(
        long,
        value_name = "[loss=]PART[%],..",
        value_delimiter = ',',
        value_parser = values::loss_goal
    )]
    pub(crate) search: Vec<f64>,

    /// Measure latency at 10, 20, .. 100 % of the rate found; without --search, of the lossless rate
    ///
    /// Each load is measured for the length of two trials.
    #[arg(long)]
    pub(crate) curve: bool,

    /// Repeat the search N times, to get the spread of its results
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) search_repeats: u32,

    /// Length of the last trials, seconds; the first trials are a fifth as long
    #[arg(long, value_name = "S", default_value = "1", value_parser = values::seconds)]
    pub(crate) search_trial: Duration,

    /// Time of trials that suffices to judge a rate, seconds [default: five trials]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) search_sum: Option<Duration>,

    /// Share of a rate's trials, by time, that may lose more than the limit
    ///
    /// It allows for trials that other programs on the host have disturbed. 0 is the rule of RFC 2544.
    #[arg(long, value_name = "PART[%]", default_value = "50%", value_parser = values::part)]
    pub(crate) search_exceed: f64,

    /// Relative distance of the bounds of a rate at which the search ends
    #[arg(long, value_name = "PART[%]", default_value = "0.5%", value_parser = values::part)]
    pub(crate) search_width: f64,

    /// Lowest rate to try
    #[arg(long, value_name = "N[k|M|G]pps|N[k|M|G]bps", default_value = "1kpps", value_parser = values::load)]
    pub(crate) search_min: OfferedRate,

    /// Highest rate to try [default: 10 % above full speed, which is measured first]
    #[arg(long, value_name = "N[k|M|G]pps|N[k|M|G]bps", value_parser = values::load)]
    pub(crate) search_max: Option<OfferedRate>,
}

/// Length of the first trials relative to the last ones.
const INITIAL_PART: f64 = 0.2;
const SUM_TRIALS: f64 = 5.0;

impl SearchArgs {
    pub(crate) fn spec(&self) -> Option<SearchSpec> {
        if self.search.is_empty() && !self.curve {
            return None;
        }
        let final_trial_s = self.search_trial.as_secs_f64();
        let mut loss_ratios = if self.search.is_empty() { vec![0.0] } else { self.search.clone() };
        loss_ratios.sort_by(f64::total_cmp);
        loss_ratios.dedup();
        let rules = SearchRules {
            loss_ratios,
            exceed_ratio: self.search_exceed,
            initial_trial_s: final_trial_s * INITIAL_PART,
            final_trial_s,
            duration_sum_s: self.search_sum.map_or(final_trial_s * SUM_TRIALS, |sum| sum.as_secs_f64()),
            width: self.search_width,
        };
        let (min, max, repeats, curve) = (self.search_min, self.search_max, self.search_repeats, self.curve);
        Some(SearchSpec { rules, min, max, repeats, curve })
    }
}
