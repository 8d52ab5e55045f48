//! The figures, as JSON and as lines.

use serde::Serialize;
use std::path::Path;

/// Permitted growth beyond twice the memory after the first cycle, bytes: pools grow in steps.
const GROWTH_BYTES: u64 = 64 << 20;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Times {
    count: u64,
    p50: u64,
    p99: u64,
    p99_9: u64,
    max: u64,
}

impl Times {
    pub(crate) fn summarise(&mut self, mut values: Vec<u64>) {
        values.sort_unstable();
        let at = |per_mille: usize| values.get(values.len().saturating_sub(1) * per_mille / 1000).copied();
        let [p50, p99, p99_9, max] = [500, 990, 999, 1000].map(|share| at(share).unwrap_or(0));
        *self = Self { count: values.len() as u64, p50, p99, p99_9, max };
    }
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) engine: String,
    pub(crate) device: u32,
    pub(crate) mode: String,
    pub(crate) readers: u16,
    pub(crate) seconds: f64,
    pub(crate) batches: u64,
    pub(crate) keys_checked: u64,
    /// Answers of no generation between submit and collect.
    pub(crate) wrong: u64,
    pub(crate) deltas: u64,
    pub(crate) rebuilds: f64,
    pub(crate) swaps: f64,
    pub(crate) submit_ns: Times,
    pub(crate) apply_us: Times,
    /// Device memory in use after the first cycle of deltas, and the maximum after later ones.
    first_used_bytes: u64,
    most_used_bytes: u64,
    pub(crate) error: Option<String>,
    pub(crate) skipped: Option<String>,
}

impl Row {
    pub(crate) fn new(engine: &str, mode: &str, readers: u16) -> Self {
        Self { engine: engine.to_owned(), mode: mode.to_owned(), readers, ..Self::default() }
    }

    pub(crate) fn note_memory(&mut self, used: u64) {
        if self.first_used_bytes == 0 {
            self.first_used_bytes = used;
        }
        self.most_used_bytes = self.most_used_bytes.max(used);
    }

    fn has_grown(&self) -> bool {
        self.most_used_bytes > self.first_used_bytes.saturating_mul(2) + GROWTH_BYTES
    }

    pub(crate) fn is_failed(&self) -> bool {
        let idle = self.skipped.is_none() && (self.keys_checked == 0 || self.swaps < 2.0);
        self.wrong > 0 || self.error.is_some() || self.has_grown() || idle
    }

    fn line(&self) -> String {
        let Self { engine, mode, readers, .. } = self;
        let head = format!("{engine:<9} {mode:<10} {readers:>3} readers");
        if let Some(why) = &self.skipped {
            return format!("{head}  skipped: {why}");
        }
        let Times { p50, p99, p99_9, .. } = self.submit_ns;
        let grown = if self.has_grown() { ", MEMORY GROWS" } else { "" };
        let error = self.error.as_ref().map_or(String::new(), |error| format!(", FAILED: {error}"));
        format!(
            "{head}  {} keys, {} wrong, {} deltas, {} swaps, submit ns p50 {p50} p99 {p99} p99.9 {p99_9}, apply us p99 {} max {}{grown}{error}",
            self.keys_checked, self.wrong, self.deltas, self.swaps, self.apply_us.p99, self.apply_us.max
        )
    }
}

#[derive(Serialize)]
pub(crate) struct ConcurrencyReport<'a> {
    #[serde(skip)]
    json: Option<&'a Path>,
    seed: u64,
    connections: Option<String>,
    rows: Vec<Row>,
}

impl<'a> ConcurrencyReport<'a> {
    pub(crate) fn new(json: Option<&'a Path>, seed: u64) -> Self {
        Self { json, seed, connections: std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok(), rows: Vec::new() }
    }

    fn is_quiet(&self) -> bool {
        self.json == Some(Path::new("-"))
    }

    pub(crate) fn push(&mut self, row: Row) {
        if !self.is_quiet() {
            println!("{}", row.line());
        }
        self.rows.push(row);
    }

    pub(crate) fn finish(&self) -> anyhow::Result<bool> {
        if let Some(path) = self.json {
            if self.is_quiet() {
                println!("{}", serde_json::to_string_pretty(self)?);
            } else {
                fib::output::write_json(path, self)?;
            }
        }
        Ok(self.rows.iter().all(|row| !row.is_failed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_fails_the_row() {
        let good = || Row { keys_checked: 5, swaps: 2.0, ..Row::new("gamt", "copy", 1) };
        assert!(!good().is_failed());
        assert!(Row { wrong: 1, ..good() }.is_failed());
        assert!(Row { error: Some("x".into()), ..good() }.is_failed());
        assert!(Row { keys_checked: 0, ..good() }.is_failed(), "nothing was checked");
        assert!(!Row { skipped: Some("x".into()), ..Row::new("gamt", "copy", 4) }.is_failed());
        let mut grows = good();
        grows.note_memory(1 << 20);
        grows.note_memory(3 << 20);
        assert!(!grows.is_failed());
        grows.note_memory(1 << 30);
        assert!(grows.is_failed() && grows.line().contains("MEMORY GROWS"));
    }

    #[test]
    fn times_are_those_that_were_taken() {
        let mut times = Times::default();
        times.summarise((1..=1000).rev().collect());
        assert_eq!((times.count, times.p50, times.p99, times.p99_9, times.max), (1000, 500, 990, 999, 1000));
        times.summarise(Vec::new());
        assert_eq!((times.count, times.max), (0, 0));
    }
}
