//! Text formats for metrics: Prometheus 0.0.4 and OpenMetrics 1.0.
//!
//! In OpenMetrics a family is named without the suffixes `_total` and `_info` of its samples.

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Prometheus,
    OpenMetrics,
}

impl TextFormat {
    /// OpenMetrics if the `Accept` header of a request lists it, else Prometheus.
    pub(crate) fn accepted(accept: &str) -> Self {
        let mut types = accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        let is_open = types.any(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
        if is_open { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    pub(crate) const fn end(self) -> &'static str {
        match self {
            Self::Prometheus => "",
            Self::OpenMetrics => "# EOF\n",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Count since the start; its samples end in `_total`.
    Counter,
    Gauge,
    /// Facts as labels of a sample with value 1; its name ends in `_info`.
    Info,
    Histogram,
}

impl MetricKind {
    /// The type's name in a text format. Prometheus has no infos; they are gauges there.
    pub(crate) const fn name(self, format: TextFormat) -> &'static str {
        match (self, format) {
            (Self::Counter, _) => "counter",
            (Self::Info, TextFormat::OpenMetrics) => "info",
            (Self::Gauge | Self::Info, _) => "gauge",
            (Self::Histogram, _) => "histogram",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MetricValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for MetricValue {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

pub(crate) type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Debug)]
struct MetricSample {
    part: &'static str,
    labels: Labels,
    value: MetricValue,
}

#[derive(Clone, Debug)]
pub(crate) struct MetricFamily {
    /// Without the suffix of its kind; includes the unit, if there is one.
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<MetricSample>,
}

impl MetricFamily {
    pub(crate) const fn new(kind: MetricKind, name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    pub(crate) fn with(mut self, labels: Labels, value: impl Into<MetricValue>) -> Self {
        self.add(labels, value);
        self
    }

    pub(crate) fn with_all<V: Into<MetricValue>>(
        mut self,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> Self {
        samples.into_iter().for_each(|(labels, value)| self.add(labels, value));
        self
    }

    fn add(&mut self, labels: Labels, value: impl Into<MetricValue>) {
        self.samples.push(MetricSample { part: "", labels, value: value.into() });
    }

    /// Adds the samples of a histogram: `buckets` holds upper limits as text and cumulative counts, `count` and `sum` cover all observations.
    pub(crate) fn with_buckets(mut self, buckets: &[(&'static str, u64)], count: u64, sum: f64) -> Self {
        let mut add = |part, labels, value| self.samples.push(MetricSample { part, labels, value });
        for (limit, count) in buckets.iter().copied().chain([("+Inf", count)]) {
            add("_bucket", vec![("le", limit.to_owned())], count.into());
        }
        add("_sum", Vec::new(), sum.into());
        add("_count", Vec::new(), count.into());
        self
    }

    fn unit(&self) -> Option<&'static str> {
        ["bytes", "seconds"].into_iter().find(|unit| self.name.rsplit('_').next() == Some(unit))
    }

    /// The row of the family in the table in the documentation: sample name, kind, labels and help.
    #[cfg(test)]
    pub(crate) fn row(&self) -> String {
        let labels =
            self.samples.first().map(|sample| sample.labels.iter().map(|(name, _)| format!("`{name}`")));
        let labels: Vec<_> = labels.into_iter().flatten().collect();
        let (suffix, kind) = (self.kind.suffix(), self.kind.name(TextFormat::OpenMetrics));
        format!("| `{}{suffix}` | {kind} | {} | {} |", self.name, labels.join(" "), self.help)
    }

    pub(crate) fn write(&self, format: TextFormat, text: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let Self { name, kind, .. } = *self;
        let suffix = kind.suffix();
        let of_family = if format == TextFormat::Prometheus { suffix } else { "" };
        let _ = writeln!(text, "# HELP {name}{of_family} {}", self.help);
        let _ = writeln!(text, "# TYPE {name}{of_family} {}", kind.name(format));
        if let Some(unit) = self.unit().filter(|_| format == TextFormat::OpenMetrics) {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        for MetricSample { part, labels, value } in &self.samples {
            let _ = write!(text, "{name}{suffix}{part}");
            let mut open = '{';
            for (label, value) in labels {
                let _ = write!(text, "{open}{label}=\"");
                escape(value, text);
                text.push('"');
                open = ',';
            }
            text.push_str(if labels.is_empty() { " " } else { "} " });
            let _ = match value {
                MetricValue::Whole(value) => writeln!(text, "{value}"),
                MetricValue::Real(value) => writeln!(text, "{value:?}"),
            };
        }
    }
}

fn escape(value: &str, text: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(family: &MetricFamily, format: TextFormat) -> String {
        let mut text = String::new();
        family.write(format, &mut text);
        text
    }

    #[test]
    fn a_counter_has_its_total_where_each_format_wants_it() {
        let family = MetricFamily::new(MetricKind::Counter, "fwd_rx_bytes", "Bytes received");
        assert_eq!(text(&family, TextFormat::Prometheus), "", "no samples, no family");
        let family = family.with(Vec::new(), 7_u64).with(vec![("port", "0".to_owned())], u64::MAX);
        assert_eq!(
            text(&family, TextFormat::Prometheus),
            "# HELP fwd_rx_bytes_total Bytes received\n# TYPE fwd_rx_bytes_total counter\nfwd_rx_bytes_total 7\n\
             fwd_rx_bytes_total{port=\"0\"} 18446744073709551615\n"
        );
        assert_eq!(
            text(&family, TextFormat::OpenMetrics),
            "# HELP fwd_rx_bytes Bytes received\n# TYPE fwd_rx_bytes counter\n# UNIT fwd_rx_bytes bytes\n\
             fwd_rx_bytes_total 7\nfwd_rx_bytes_total{port=\"0\"} 18446744073709551615\n"
        );
    }

    #[test]
    fn an_info_is_a_gauge_of_1_where_there_are_no_infos() {
        let labels = vec![("version", "1".to_owned()), ("commit", String::new())];
        let family = MetricFamily::new(MetricKind::Info, "fwd_build", "The program").with(labels, true);
        let sample = "fwd_build_info{version=\"1\",commit=\"\"} 1\n";
        let told = text(&family, TextFormat::Prometheus);
        assert_eq!(told, format!("# HELP fwd_build_info The program\n# TYPE fwd_build_info gauge\n{sample}"));
        let told = text(&family, TextFormat::OpenMetrics);
        assert_eq!(told, format!("# HELP fwd_build The program\n# TYPE fwd_build info\n{sample}"));
    }

    #[test]
    fn a_histogram_has_all_its_samples() {
        let family = MetricFamily::new(MetricKind::Histogram, "fwd_latency_seconds", "Latency");
        let family = family.with_buckets(&[("1e-06", 2), ("0.1", 5)], 6, 0.25);
        let told = text(&family, TextFormat::OpenMetrics);
        let samples = "fwd_latency_seconds_bucket{le=\"1e-06\"} 2\nfwd_latency_seconds_bucket{le=\"0.1\"} 5\n\
                       fwd_latency_seconds_bucket{le=\"+Inf\"} 6\nfwd_latency_seconds_sum 0.25\nfwd_latency_seconds_count 6\n";
        assert!(told.ends_with(samples) && told.contains("# UNIT fwd_latency_seconds seconds\n"), "{told}");
    }

    #[test]
    fn labels_of_any_text_stay_in_their_line() {
        let label = |value: &str| vec![("name", value.to_owned())];
        let family = MetricFamily::new(MetricKind::Gauge, "fwd_up", "Up");
        let family = family.with(label("a\\b\"c\nd\u{e9}"), 0.5).with(label("} 9\n# EOF"), f64::NAN);
        let told = text(&family, TextFormat::Prometheus);
        let lines: Vec<_> = told.lines().skip(2).collect();
        assert_eq!(lines, ["fwd_up{name=\"a\\\\b\\\"c\\nd\u{e9}\"} 0.5", "fwd_up{name=\"} 9\\n# EOF\"} NaN"]);
    }

    #[test]
    fn the_format_is_what_the_client_accepts() {
        let of_prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for accept in [of_prometheus, "text/html, Application/OpenMetrics-Text ; q=1"] {
            assert_eq!(TextFormat::accepted(accept), TextFormat::OpenMetrics, "{accept}");
        }
        for accept in ["", "*/*", "text/plain; version=0.0.4", "text/application/openmetrics-text"] {
            assert_eq!(TextFormat::accepted(accept), TextFormat::Prometheus, "{accept}");
        }
    }
}
