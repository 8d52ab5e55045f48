//! What ran: enough to run it again, and to judge whether the numbers of another run may be held against it.

use crate::forwarder::in_effect::ConfigValue;
use chrono::{DateTime, SecondsFormat, Utc};
use fib::host::HostFacts;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What was to be done, by key: the table, the packets, and how they were offered. Numbers of different work cannot be compared. What is
/// not known is `null`.
pub(crate) type Work = BTreeMap<&'static str, Value>;

/// What ran.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ran {
    /// When it was started, RFC 3339, UTC.
    started: String,
    /// The command line.
    arguments: Vec<String>,
    /// The options that are not at their defaults, by their place in a configuration file: those of the command line, of the environment
    /// and of the file.
    options: BTreeMap<String, Value>,
    /// The commit that this program was built from, where the build knew it.
    commit: Option<&'static str>,
    /// Whether it was built for speed.
    is_optimized: bool,
    /// Seeds, by what they are for.
    pub(crate) seeds: BTreeMap<&'static str, u64>,
    /// What was to be done.
    pub(crate) work: Work,
    /// The host.
    host: HostFacts,
}

impl Ran {
    /// What runs in this process now, with these options. Call it before EAL pins the thread.
    pub(crate) fn new(options: &[ConfigValue], commit: Option<&'static str>) -> Self {
        let given = options.iter().filter(|option| option.origin != "default");
        Self {
            started: DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Secs, true),
            arguments: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            options: given.map(|option| (option.path.clone(), option.value.clone())).collect(),
            commit,
            is_optimized: !cfg!(debug_assertions),
            seeds: BTreeMap::new(),
            work: Work::new(),
            host: HostFacts::read(),
        }
    }

    /// With a seed, by what it is for.
    pub(crate) fn with_seed(mut self, of: &'static str, seed: u64) -> Self {
        self.seeds.insert(of, seed);
        self
    }
}
