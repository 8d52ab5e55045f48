//! The figures, as JSON and as a table.

use crate::copy::CopyDirection;
use crate::options::Mode;
use anyhow::Context as _;
use fib::output::write_json;
use fib::units::size_text;
use lpm_bench::text::{Column, table};
use lpm_gpu::cu::{Device, Facts};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;

/// All measurements. Rates are medians.
#[derive(Debug, Serialize)]
pub(crate) struct CeilingsReport {
    tool: &'static str,
    version: &'static str,
    device: Value,
    /// For the table; `device` has the same in JSON.
    #[serde(skip)]
    facts: Facts,
    seed: u32,
    repeat: u16,
    pub(crate) kernels: Vec<KernelRow>,
    pub(crate) copy: Vec<CopyRow>,
    pub(crate) gather: Vec<GatherRow>,
    pub(crate) chase: Vec<ChaseRow>,
    pub(crate) latency: Vec<LatencyRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct KernelRow {
    pub(crate) entry: String,
    pub(crate) registers: u32,
    /// Of a thread; anything above 0 is slow.
    pub(crate) local_bytes: u32,
    /// Of a block.
    pub(crate) shared_bytes: u32,
    /// Resident threads of a multiprocessor.
    pub(crate) threads_multiprocessor: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct CopyRow {
    pub(crate) direction: CopyDirection,
    /// In each direction.
    pub(crate) streams: u16,
    /// Of one copy.
    pub(crate) bytes: u64,
    pub(crate) gb_s: f64,
    pub(crate) gb_s_min: f64,
    pub(crate) gb_s_max: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct GatherRow {
    pub(crate) footprint_bytes: u64,
    pub(crate) width_bytes: u8,
    /// `frozen` or `live`, like the lookup kernels.
    pub(crate) load: &'static str,
    pub(crate) giga_loads_s: f64,
    pub(crate) giga_loads_s_min: f64,
    pub(crate) giga_loads_s_max: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChaseRow {
    pub(crate) footprint_bytes: u64,
    pub(crate) load_ns: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct LatencyRow {
    pub(crate) mode: Mode,
    pub(crate) batch: u32,
    pub(crate) batches: usize,
    pub(crate) min_us: f64,
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

impl CeilingsReport {
    pub(crate) fn new(device: &Device, seed: u32, repeat: u16) -> Self {
        let facts = device.facts();
        Self {
            tool: "gpu-ceilings",
            version: env!("CARGO_PKG_VERSION"),
            device: json!({
                "name": facts.name, "capability": capability(facts), "driver": facts.driver.to_string(),
                "multiprocessors": facts.multiprocessors, "copy_engines": facts.copy_engines, "clock_khz": facts.clock_khz,
                "memory_clock_khz": facts.memory_clock_khz, "memory_bus_bits": facts.memory_bus_bits,
                "memory_bytes": facts.memory_bytes, "l2_bytes": facts.l2_bytes,
                "l2_persisting_bytes_max": facts.l2_persisting_bytes_max,
            }),
            facts: facts.clone(),
            seed,
            repeat,
            kernels: Vec::new(),
            copy: Vec::new(),
            gather: Vec::new(),
            chase: Vec::new(),
            latency: Vec::new(),
        }
    }

    /// Writes the JSON to `json` (`-`: standard output alone), and the table to standard output.
    pub(crate) fn write(&self, json: Option<&Path>) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if json == Some(Path::new("-")) {
            return writeln!(out, "{}", serde_json::to_string_pretty(self)?).context("standard output");
        }
        if let Some(path) = json {
            write_json(path, self).with_context(|| path.display().to_string())?;
        }
        write!(out, "{}", self.table()).context("standard output")
    }

    fn table(&self) -> String {
        let Facts { name, driver, multiprocessors, l2_bytes, memory_bytes, .. } = &self.facts;
        let mut text = format!(
            "{name}: capability {}, {driver}, {multiprocessors} multiprocessors, L2 {}, memory {}\n",
            capability(&self.facts),
            l2_bytes.map_or_else(|| "unknown".to_owned(), size_text),
            memory_bytes.map_or_else(|| "unknown".to_owned(), size_text)
        );
        let columns: [Column<'_, KernelRow>; 4] = [
            ("entry", |row| row.entry.clone()),
            ("registers", |row| row.registers.to_string()),
            ("local bytes", |row| row.local_bytes.to_string()),
            ("threads a multiprocessor", |row| row.threads_multiprocessor.to_string()),
        ];
        section(&mut text, "Kernels", &columns, &self.kernels);
        let columns: [Column<'_, CopyRow>; 5] = [
            ("direction", |row| format!("{:?}", row.direction).to_lowercase()),
            ("streams", |row| row.streams.to_string()),
            ("a copy", |row| size_text(row.bytes)),
            ("GB/s", |row| figure(row.gb_s)),
            ("spread", |row| format!("{} .. {}", figure(row.gb_s_min), figure(row.gb_s_max))),
        ];
        section(&mut text, "Copies", &columns, &self.copy);
        let columns: [Column<'_, GatherRow>; 5] = [
            ("footprint", |row| size_text(row.footprint_bytes)),
            ("bytes", |row| row.width_bytes.to_string()),
            ("load", |row| row.load.to_owned()),
            ("G/s", |row| figure(row.giga_loads_s)),
            ("spread", |row| format!("{} .. {}", figure(row.giga_loads_s_min), figure(row.giga_loads_s_max))),
        ];
        section(&mut text, "Random loads", &columns, &self.gather);
        let columns: [Column<'_, ChaseRow>; 2] =
            [("footprint", |row| size_text(row.footprint_bytes)), ("ns", |row| figure(row.load_ns))];
        section(&mut text, "One load after the other", &columns, &self.chase);
        let columns: [Column<'_, LatencyRow>; 5] = [
            ("mode", |row| format!("{:?}", row.mode).to_lowercase()),
            ("batch", |row| row.batch.to_string()),
            ("median", |row| figure(row.median_us)),
            ("99 %", |row| figure(row.p99_us)),
            ("least", |row| figure(row.min_us)),
        ];
        section(&mut text, "There and back, us", &columns, &self.latency);
        text
    }
}

fn capability(facts: &Facts) -> String {
    format!("{}.{}", facts.capability.0, facts.capability.1)
}

fn section<Row>(text: &mut String, title: &str, columns: &[Column<'_, Row>], rows: &[Row]) {
    if !rows.is_empty() {
        text.push_str(&format!("\n{title}\n{}\n", table(columns, 1, rows)));
    }
}

fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([figure(123.4), figure(12.34), figure(1.234)], ["123", "12.3", "1.23"]);
    }

    #[test]
    fn a_section_without_rows_is_left_out() {
        let mut text = String::new();
        let columns: [Column<'_, u32>; 2] = [("a", u32::to_string), ("b", |_| "2".to_owned())];
        section(&mut text, "Nothing", &columns, &[]);
        assert_eq!(text, "");
        section(&mut text, "One", &columns, &[1]);
        assert!(text.contains("One\n") && text.contains('2'), "{text}");
    }
}
