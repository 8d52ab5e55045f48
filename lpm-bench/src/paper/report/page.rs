//! The page: the verdict, every number, contradictions of the documents, the data, the figures, the commands to repeat it.
//!
//! One file without external requests; light or dark as the reader's system; long tables are folded.

use super::{DocumentReport, Report, ReportClaim, ReportFigure, list};
use crate::paper::claims::{Rule, Verdict};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use std::collections::BTreeSet;

/// Contradictions and impossible statements of the documents: a line begins with a letter and a number, or names a document.
const CONTRADICTIONS: &str = include_str!("../claims/contradictions.txt");
const STYLE: &str = include_str!("page.css");

pub(super) fn render(report: &Report) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "The papers on this host" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "The papers on this host" }
                nav {
                    @for (id, words) in [("verdict", "Verdict"), ("claims", "Claims"), ("contradictions", "Contradictions"),
                        ("data", "Data and host"), ("again", "Run it again")] {
                        a href={ "#" (id) } { (words) } " "
                    }
                    @for document in report.documents.iter().filter(|document| !document.figures.is_empty()) {
                        a href={ "#" (document.name) } { (document.name) } " "
                    }
                }
                (verdict(report))
                (claims(report))
                (contradictions())
                (data(report))
                @for document in report.documents.iter().filter(|document| !document.figures.is_empty()) {
                    (figures(document))
                }
                (again(report))
            }
        }
    }
}

fn verdict(report: &Report) -> Markup {
    let count = |verdict: Verdict| report.claims().filter(|claim| claim.verdict() == verdict).count();
    let counts = Verdict::ALL.map(|verdict| format!("{} {}", count(verdict), verdict.words())).join(", ");
    let or_none = |words: String| if words.is_empty() { "none".to_owned() } else { words };
    let mut contradicted = Vec::new();
    for document in &report.documents {
        let claims = document.claims.iter().filter(|claim| claim.verdict() == Verdict::Contradicted);
        contradicted
            .extend(claims.map(|claim| format!("{}: {}", document.name, text(&claim.judged["what"]))));
    }
    let skipped = report.figures().filter(|figure| !figure.document["skipped"].is_null());
    let skipped: Vec<_> = skipped.map(|figure| figure.id.as_str()).collect();
    html! {
        section #verdict {
            h2 { "Verdict" }
            ol {
                li { (report.claims().count()) " numbers in " (report.documents.len()) " documents: " (counts) "." }
                li { "Contradicted: " (or_none(contradicted.join("; "))) "." }
                li { (report.checked) " answers compared with the oracle's, " (report.wrong) " wrong." }
                li { "Figures that lack some or all of their lines, because of missing hardware: " (or_none(skipped.join(", "))) "." }
                li { (report.host.summary()) @if report.quick { "; a quick run: fewer points, shorter times" } "." }
            }
        }
    }
}

fn claims(report: &Report) -> Markup {
    html! {
        section #claims {
            h2 { "Every number of the documents" }
            p {
                "A verdict follows a rule. It compares our first number, which is measured with the document's own form of its system. "
                "If this host cannot measure a number, the reason is given."
            }
            details {
                summary { "The rules" }
                dl { @for (word, asks) in Rule::all() { dt { (word) } dd { (asks) } } }
            }
            @for document in report.documents.iter().filter(|document| !document.claims.is_empty()) {
                h3 { (document.title) }
                @let (made, rest): (Vec<_>, Vec<_>) = document.claims.iter().partition(|claim| claim.figure.is_some());
                @let (held, not): (Vec<_>, Vec<_>) = rest.into_iter().partition(|claim| claim.command.is_some());
                (claim_table(&document.name, &made))
                @for (claims, words) in [(held, " numbers that tests check"), (not, " numbers that are not measured here")] {
                    @if !claims.is_empty() { details { summary { (claims.len()) (words) } (claim_table(&document.name, &claims)) } }
                }
            }
        }
    }
}

fn claim_table(document: &str, claims: &[&ReportClaim]) -> Markup {
    html! {
        @if !claims.is_empty() {
            div .wide { table .claims {
                thead { tr {
                    @for head in ["what", "section", "paper", "ours", "ratio", "rule", "verdict", "before", "command, minutes"] { th { (head) } }
                } }
                tbody { @for claim in claims {
                    tr class=(text(&claim.judged["verdict"])) {
                        td { (text(&claim.judged["what"])) }
                        td { (text(&claim.judged["section"])) }
                        td { (numbers(&claim.judged["paper"])) " " (text(&claim.judged["unit"])) }
                        td { (our_numbers(&claim.judged["ours"])) }
                        td { (number(&claim.judged["ratio"])) }
                        td { (text(&claim.judged["rule"])) }
                        td { (claim.verdict().words()) @if let Some(reason) = claim.judged["reason"].as_str() { ": " (reason) } }
                        td { @if let Some(before) = claim.before { (digits(before)) } }
                        td {
                            @match (&claim.figure, &claim.command) {
                                (Some(figure), Some(command)) => a href={ "#" (document) "-" (figure) } { code { (command) } },
                                (None, Some(command)) => code { (command) },
                                _ => {}
                            }
                            @if let Some(minutes) = claim.minutes { ", " (digits(minutes)) }
                        }
                    }
                } }
            } }
        }
    }
}

fn contradictions() -> Markup {
    // A line that begins with a space continues the previous one.
    let joined = CONTRADICTIONS.replace("\n ", " ");
    html! {
        section #contradictions {
            h2 { "Where the documents contradict themselves" }
            p { "\"Computed\" means arithmetic on the document's own numbers." }
            @for line in joined.lines().filter(|line| !line.trim().is_empty()) {
                @if line.chars().nth(1).is_some_and(|second| second.is_ascii_digit()) { p .item { (line) } }
                @else { p { strong { (line) } } }
            }
        }
    }
}

fn data(report: &Report) -> Markup {
    let sets = report.figures().flat_map(|figure| list(&figure.document["data"]));
    let sets: BTreeSet<String> = sets
        .map(|set| {
            let [name, routes, updates] = ["name", "routes", "updates"].map(|key| text(&set[key]));
            let [v4, v6, update_count] =
                ["routes_v4", "routes_v6", "updates_told"].map(|key| number(&set[key]));
            format!("{name}: {v4} IPv4 and {v6} IPv6 routes ({routes}), {update_count} updates ({updates})")
        })
        .collect();
    html! {
        section #data {
            h2 { "Data, host, threats to validity" }
            ul {
                @for set in sets { li { (set) } }
                li { "Host: " (report.host.summary()) }
                li { "Build: " (report.build.commit) ", " (report.build.profile) ", " (report.build.flags) }
            }
            ul {
                li { "The papers' tables and traces are not available; the data sets above replace them." }
                li { "The papers' hardware is from 2011 to 2016, so a comparison of speeds is not a comparison of algorithms only." }
                li { "Rounds of all subjects take turns on a shared host; a bar at a point is the range of its rounds." }
                li { "The plots of the documents were not read: hollow marks show only numbers from their text." }
            }
        }
    }
}

fn figures(document: &DocumentReport) -> Markup {
    html! {
        section id=(document.name) {
            h2 { (document.title) }
            @for figure in &document.figures { (one(&document.name, figure)) }
        }
    }
}

fn one(name: &str, figure: &ReportFigure) -> Markup {
    let rows: Vec<_> = list(&figure.document["rows"]).collect();
    html! {
        figure id={ (name) "-" (figure.id) } {
            h3 { (figure.id) ": " (text(&figure.document["title"])) }
            @match &figure.picture {
                Some(picture) => div .wide { (PreEscaped(picture)) },
                None if !figure.document["skipped"].is_null() => {
                    div .frame { (text(&figure.document["skipped"])) " " code { (figure.command) } }
                }
                None => {}
            }
            figcaption {
                @for traffic in list(&figure.document["traffic"]) { p { "Traffic: " (text(traffic)) } }
                p { (text(&figure.document["note"])) }
                @if figure.picture.is_some() && !figure.document["skipped"].is_null() { p { "Missing: " (text(&figure.document["skipped"])) } }
                p { code { (figure.command) } }
            }
            @if !rows.is_empty() {
                details { summary { (rows.len()) " rows" } (row_table(&rows)) }
            }
        }
    }
}

fn row_table(rows: &[&Value]) -> Markup {
    let keys: BTreeSet<_> =
        rows.iter().filter_map(|row| row.as_object()).flat_map(|row| row.keys()).collect();
    html! {
        div .wide { table {
            thead { tr { @for key in &keys { th { (key) } } } }
            tbody { @for row in rows { tr { @for key in &keys { td { (cell(&row[key.as_str()])) } } } } }
        } }
    }
}

fn again(report: &Report) -> Markup {
    let words = report.figures().take(1).flat_map(|figure| list(&figure.document["arguments"]));
    let words: Vec<_> = words.map(text).collect();
    html! {
        section #again {
            h2 { "Run it again" }
            pre { "lpm-bench " (words.join(" ")) }
            p { "One figure alone: the command under it, with the same tables." }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> String {
    value.as_f64().map(digits).unwrap_or_default()
}

fn numbers(values: &Value) -> String {
    list(values).map(number).collect::<Vec<_>>().join(" to ")
}

fn our_numbers(values: &Value) -> String {
    let one = |ours: &Value| format!("{} {}", text(&ours["of"]), number(&ours["value"])).trim().to_owned();
    list(values).map(one).filter(|one| !one.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A cell of a row; a spread shows its median.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(spread) if spread.contains_key("median") => {
            let [median, min, max] = ["median", "min", "max"].map(|key| number(&value[key]));
            format!("{median} ({min} to {max})")
        }
        value => value.as_f64().map_or_else(|| value.to_string(), digits),
    }
}

/// No decimals from 1000 on, three below 10.
fn digits(value: f64) -> String {
    match value.abs() {
        _ if value == value.trunc() => format!("{value:.0}"),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_need_be() {
        let values = [3.0, 0.123_45, 1.5, 22.35, 450_752.0, 1234.5];
        assert_eq!(values.map(digits), ["3", "0.123", "1.500", "22.4", "450752", "1234"]);
        let spread = serde_json::json!({"median": 2.0, "min": 1.0, "max": 3.5});
        assert_eq!(cell(&spread), "2 (1 to 3.500)");
    }
}
