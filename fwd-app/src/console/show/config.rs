//! `show config`: the options in effect and their origins.

use crate::console::Answer;
use crate::console::desk::Steering;
use crate::report::Setup;
use crate::report::columns::Columns;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

impl Steering<'_> {
    pub(in crate::console) fn config(&self) -> Answer {
        Answer::new(ConfigShown {
            setup: self.desk.site.setup.clone(),
            sources: self.forwarder.source_order(),
            values: self.forwarder.config.iter().map(|at| (at.path.clone(), at.value.clone())).collect(),
            origins: self.forwarder.config.iter().map(|at| (at.path.clone(), at.origin.clone())).collect(),
        })
    }
}

#[derive(Serialize)]
struct ConfigShown {
    #[serde(flatten)]
    setup: Setup,
    sources: Vec<&'static str>,
    /// Option values, and below their origins, by table and key.
    values: BTreeMap<String, serde_json::Value>,
    origins: BTreeMap<String, String>,
}

impl fmt::Display for ConfigShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::report::text::setup(&self.setup))?;
        writeln!(f, "sources  {} (the first is preferred)", self.sources.join(", "))?;
        // Text leaves out the defaults, which `fwd-app config` and JSON show.
        let mut columns = Columns::new([]);
        for (path, value) in self.values.iter().filter(|(path, _)| self.origins[*path] != "default") {
            columns.row([path.clone(), value.to_string(), self.origins[path].clone()]);
        }
        columns.fmt(f)
    }
}
