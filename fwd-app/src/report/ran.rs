//! Description of a run: enough to repeat it, and to decide whether its numbers are comparable with those from another run.

use crate::forwarder::in_effect::ConfigValue;
use chrono::{DateTime, SecondsFormat, Utc};
use fib::host::HostFacts;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The work by key: table, packets and offered rate. Only numbers of equal work are comparable. Unknown values are `null`.
pub(crate) type RunWork = BTreeMap<&'static str, Value>;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ran {
    /// RFC 3339, UTC.
    started: String,
    arguments: Vec<String>,
    /// Options that differ from their defaults, by path in a configuration file.
    options: BTreeMap<String, Value>,
    commit: Option<&'static str>,
    is_optimized: bool,
    pub(crate) seeds: BTreeMap<&'static str, u64>,
    pub(crate) work: RunWork,
    host: HostFacts,
}

impl Ran {
    /// Describes this process. Must be called before EAL pins the thread.
    pub(crate) fn new(options: &[ConfigValue], commit: Option<&'static str>) -> Self {
        let given = options.iter().filter(|option| option.origin != "default");
        Self {
            started: DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Secs, true),
            arguments: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            options: given.map(|option| (option.path.clone(), option.value.clone())).collect(),
            commit,
            is_optimized: !cfg!(debug_assertions),
            seeds: BTreeMap::new(),
            work: RunWork::new(),
            host: HostFacts::read(),
        }
    }

    pub(crate) fn with_seed(mut self, of: &'static str, seed: u64) -> Self {
        self.seeds.insert(of, seed);
        self
    }
}
