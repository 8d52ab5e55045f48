//! `fwd-app lookup`: prints `ADDR<TAB>NEXT-HOP-ID` for each address, in input order.
//!
//! Addresses are batched, with one engine call per family and batch. A batch is flushed when full or when no input is pending, so that an
//! interactive peer on two pipes is answered at once. Nothing is allocated after the first batch.

use crate::cli::args::TableArgs;
use crate::commands::tables;
use crate::engines::{ENGINES, STALL_US_MAX};
use crate::report::console::warn;
use crate::report::output::is_broken_pipe;
use crate::report::progress::Bar;
use crate::routes::Vrf;
use crate::routes::spec::TableSpec;
use anyhow::Context as _;
use clap::Args;
use fib::feed;
use fib::{EngineReader, KeyBuffer, NextHopId};
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Addresses per batch: enough to hide cache misses of the table, few enough for the L1 and L2 caches.
const BATCH: usize = 4096;
const READ_BYTES: usize = 256 << 10;
/// The longest line accepted as an address with blanks and comment; a longer line that is no comment is an error.
const LINE_BYTES_MAX: usize = 4096;

/// Updates per delta: enough to amortize the engine's fixed cost, few enough that readers see changes soon.
const UPDATES_PER_DELTA: u64 = 1024;

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app lookup --fib routes.txt 192.0.2.1 2001:db8::1
  fwd-app lookup --fib v4.txt --fib v6.txt.xz --engine oracle < addresses.txt > answers.tsv
  fwd-app lookup --fib routes.txt --updates updates.mrt.gz --updates-limit 100000 192.0.2.1

The output has a line for each address, ADDRESS<TAB>NEXT-HOP-ID, in the order of the input; 0 means no route.
Blank lines and comments after # in the input are skipped.";

/// `fwd-app lookup`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LookupArgs {
    /// Routes and engine.
    #[command(flatten)]
    pub(crate) tables: TableArgs,

    /// File of route updates to apply before the lookups
    ///
    /// BGP4MP, or lines `a PREFIX ID` and `w PREFIX`.
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,

    /// Apply only the first N updates [default: all]
    #[arg(long, value_name = "N", requires = "updates")]
    pub(crate) updates_limit: Option<u64>,

    /// IPv4 or IPv6 addresses [default: from stdin, one a line]
    #[arg(value_name = "ADDR", value_parser = address, help_heading = "Addresses")]
    pub(crate) addresses: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}'{text}' is not an IPv4 or IPv6 address")]
struct AddressError {
    /// `stdin:LINE: `; empty for an address from the command line.
    place: String,
    /// Truncated to a readable length.
    text: String,
}

impl AddressError {
    fn new(place: String, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(60)]).escape_debug().to_string();
        Self { place, text }
    }
}

/// Parses an address of the command line. An invalid one is a usage error (exit code 2).
fn address(text: &str) -> Result<String, AddressError> {
    let address = text.trim();
    let is_address = parse_v4(address.as_bytes()).is_some() || parse_v6(address.as_bytes()).is_some();
    is_address.then(|| address.to_owned()).ok_or_else(|| AddressError::new(String::new(), text.as_bytes()))
}

pub(crate) fn main(args: &LookupArgs) -> anyhow::Result<()> {
    let mut forwarder = tables::open(&patient(args.tables.spec()), &[])?;
    let vrf = forwarder.vrf_mut(0);
    if let Some(path) = &args.updates {
        apply_updates(vrf, path, args.updates_limit.unwrap_or(u64::MAX))?;
    }
    let mut batch = AddressBatch::new(vrf.engine().reader(1, BATCH)?);
    let mut out = io::stdout().lock();
    let done = if args.addresses.is_empty() {
        answer_stream(io::stdin().lock(), "stdin", &mut batch, &mut out)
    } else {
        answer_arguments(&args.addresses, &mut batch, &mut out)
    };
    match done {
        // A closed pipe (`| head`) is no failure.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn apply_updates(vrf: &mut Vrf, path: &Path, limit: u64) -> anyhow::Result<()> {
    let mut stream = feed::updates(path, None)?;
    let bytes_total = stream.bytes_total();
    let bar = Bar::new("updating", bytes_total);
    let mut updates = 0_u64;
    while updates < limit {
        let Some(update) = stream.next().transpose()? else { break };
        vrf.update(&update).with_context(|| format!("{}:{}", path.display(), stream.position()))?;
        updates += 1;
        if updates.is_multiple_of(UPDATES_PER_DELTA) {
            vrf.commit()?;
            bar.draw(stream.bytes_done(), bytes_total);
        }
    }
    vrf.commit()?;
    bar.clear();
    if let Some(cut) = stream.truncated() {
        warn(format_args!("{}: {cut}; the {updates} updates before it are applied", path.display()));
    }
    Ok(())
}

/// Raises a GPU engine's stall limit to the maximum: no packet waits. A fallback keeps its limit, so that it can take over.
fn patient(mut tables: TableSpec) -> TableSpec {
    if tables.engine.fallback.is_none() && ENGINES.is_device(&tables.engine.name) {
        tables.engine.stall_us = STALL_US_MAX;
    }
    tables
}

fn answer_arguments(
    addresses: &[String],
    batch: &mut AddressBatch,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for (number, address) in (1..).zip(addresses) {
        batch.line(address.as_bytes(), "argument", number, out)?;
    }
    batch.flush(out)
}

/// Looks up each line of `input`. Lines are parsed in the read buffer; only a line across two reads is copied.
fn answer_stream(
    input: impl io::Read,
    source_name: &'static str,
    batch: &mut AddressBatch,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    let mut carry: Vec<u8> = Vec::new();
    let mut number = 0;
    loop {
        let chunk = match input.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                batch.flush(out)?;
                return Err(error).with_context(|| format!("cannot read {source_name}"));
            }
        };
        if chunk.is_empty() {
            break;
        }
        let taken = chunk.len();
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            number += 1;
            if carry.is_empty() {
                batch.line(&rest[..end], source_name, number, out)?;
            } else {
                carry.extend_from_slice(&rest[..end]);
                batch.line(&carry, source_name, number, out)?;
                carry.clear();
            }
            rest = &rest[end + 1..];
        }
        carry.extend_from_slice(rest);
        input.consume(taken);
        if carry.len() > LINE_BYTES_MAX {
            batch.line(&carry, source_name, number + 1, out)?;
            // The prefix is parsed. Within a comment, the rest of the line is comment too.
            let is_comment = carry.contains(&b'#');
            carry.clear();
            carry.extend(is_comment.then_some(b'#'));
        }
        batch.flush(out)?;
    }
    if !carry.is_empty() {
        batch.line(&carry, source_name, number + 1, out)?;
    }
    batch.flush(out)
}

struct LookedUp {
    text_end: u32,
    is_v6: bool,
}

struct AddressBatch {
    reader: Box<dyn EngineReader>,
    text: Vec<u8>,
    entries: Vec<LookedUp>,
    keys_v4: KeyBuffer,
    keys_v6: KeyBuffer,
    answers: Vec<NextHopId>,
    output: Vec<u8>,
}

impl AddressBatch {
    fn new(reader: Box<dyn EngineReader>) -> Self {
        Self {
            reader,
            text: Vec::with_capacity(BATCH * 40),
            entries: Vec::with_capacity(BATCH),
            keys_v4: KeyBuffer::with_capacity(BATCH),
            keys_v6: KeyBuffer::with_capacity(BATCH),
            answers: vec![NextHopId::NONE; BATCH],
            output: Vec::with_capacity(BATCH * 50),
        }
    }

    /// Adds a line: an address, a comment or a blank line. Answers the addresses before an invalid line, then fails.
    fn line(
        &mut self,
        line: &[u8],
        source_name: &'static str,
        number: u64,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let text = line.split(|b| *b == b'#').next().unwrap_or_default().trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        if !self.push(text) {
            self.flush(out)?;
            return Err(AddressError::new(format!("{source_name}:{number}: "), text).into());
        }
        if self.entries.len() == BATCH {
            self.flush(out)?;
        }
        Ok(())
    }

    fn push(&mut self, text: &[u8]) -> bool {
        let is_v6 = if let Some(key) = parse_v4(text) {
            self.keys_v4.push(key);
            false
        } else if let Some(key) = parse_v6(text) {
            self.keys_v6.push(key);
            true
        } else {
            return false;
        };
        self.text.extend_from_slice(text);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an address has at most 45 bytes, a batch 4096 addresses"
        )]
        let text_end = self.text.len() as u32;
        self.entries.push(LookedUp { text_end, is_v6 });
        true
    }

    fn flush(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let (v4, v6) = self.answers[..self.entries.len()].split_at_mut(self.keys_v4.len());
        self.reader.lookup(self.keys_v4.keys(), v4)?;
        self.reader.lookup(self.keys_v6.keys(), v6)?;
        let (mut v4, mut v6) = (v4.iter(), v6.iter());
        let mut start = 0;
        for entry in &self.entries {
            let answer = if entry.is_v6 { v6.next() } else { v4.next() };
            let end = entry.text_end as usize;
            self.output.extend_from_slice(&self.text[start..end]);
            self.output.push(b'\t');
            push_decimal(&mut self.output, answer.map_or(0, |a| a.get()));
            self.output.push(b'\n');
            start = end;
        }
        self.text.clear();
        self.entries.clear();
        self.keys_v4.clear();
        self.keys_v6.clear();
        let written = out.write_all(&self.output).and_then(|()| out.flush());
        self.output.clear();
        written.context("cannot write the answers to stdout")
    }
}

fn push_decimal(out: &mut Vec<u8>, mut value: u32) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Parses a dotted quad exactly as the standard library, whose parser would cost more than the lookup.
fn parse_v4(text: &[u8]) -> Option<u32> {
    if text.len() > 15 {
        return None;
    }
    let (mut address, mut part, mut digits, mut dots) = (0_u32, 0_u32, 0, 0);
    for &byte in text {
        match byte {
            // As in the standard library, a leading zero is refused, since some parsers would read the number as octal.
            b'0'..=b'9' if digits == 0 || (part != 0 && digits < 3) => {
                part = part * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && part < 256 && dots < 3 => {
                address = address << 8 | part;
                (part, digits) = (0, 0);
                dots += 1;
            }
            _ => return None,
        }
    }
    (dots == 3 && digits > 0 && part < 256).then_some(address << 8 | part)
}

fn parse_v6(text: &[u8]) -> Option<u128> {
    std::str::from_utf8(text).ok()?.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::oracle::OracleEngine;
    use fib::{EngineOptions, EngineWriter as _};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn batch(routes: &[(&str, u32)]) -> AddressBatch {
        let mut rib = fib::Rib::new();
        for (prefix, id) in routes {
            rib.set(prefix.parse().unwrap(), NextHopId::new(*id).unwrap());
        }
        let mut engine = OracleEngine::new(&EngineOptions::default());
        rib.commit_to(&mut engine).unwrap();
        AddressBatch::new(engine.reader(1, BATCH).unwrap())
    }

    struct Dribble<'a>(&'a [u8], usize);

    impl io::Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn families_mix_and_order_is_kept_however_the_input_is_cut() {
        let mut batch = batch(&[("10.0.0.0/8", 1), ("::/0", 16_777_215), ("2001:db8::/32", 7)]);
        let input = b"# head\n10.1.2.3\r\n\n  2001:db8::1 # why\n11.0.0.1\n::ffff:10.0.0.1\n10.0.0.0";
        let wanted = "10.1.2.3\t1\n2001:db8::1\t7\n11.0.0.1\t0\n::ffff:10.0.0.1\t16777215\n10.0.0.0\t1\n";
        for size in 1..=input.len() {
            let mut out = Vec::new();
            answer_stream(Dribble(input, size), "stdin", &mut batch, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "reads of {size}");
        }
    }

    #[test]
    fn a_bad_line_is_named_after_the_good_ones_are_answered() {
        for bad in ["10.0.0.256", "10.0.0", "host", "fe80::1%eth0", "1.2.3.4/24", "\u{e9}", "010.0.0.1"] {
            let mut batch = batch(&[("0.0.0.0/0", 9)]);
            let mut out = Vec::new();
            let input = format!("1.1.1.1\n\n{bad}\n2.2.2.2\n");
            let error = answer_stream(input.as_bytes(), "stdin", &mut batch, &mut out).unwrap_err();
            assert_eq!(error.to_string(), format!("stdin:3: '{bad}' is not an IPv4 or IPv6 address"));
            assert_eq!(out, b"1.1.1.1\t9\n");
        }
    }

    #[test]
    fn an_endless_line_is_refused_not_gathered() {
        let mut batch = batch(&[]);
        let error = answer_stream(io::repeat(b'x'), "stdin", &mut batch, &mut io::sink()).unwrap_err();
        assert!(error.to_string().starts_with("stdin:1: 'xxx"), "{error}");
        let input = format!("#{}\n10.0.0.1\n", "x".repeat(1 << 20));
        let mut out = Vec::new();
        answer_stream(input.as_bytes(), "stdin", &mut batch, &mut out).unwrap();
        assert_eq!(out, b"10.0.0.1\t0\n");
    }

    #[test]
    fn more_than_a_batch_keeps_its_order() {
        let mut batch = batch(&[("0.0.0.0/1", 1), ("128.0.0.0/1", 2)]);
        let lines: Vec<String> = (0..u32::try_from(3 * BATCH + 5).unwrap())
            .map(|i| Ipv4Addr::from_bits(i.wrapping_mul(0x9e37_79b9)).to_string())
            .collect();
        let mut out = Vec::new();
        answer_stream(lines.join("\n").as_bytes(), "stdin", &mut batch, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), lines.len());
        for (line, address) in out.lines().zip(&lines) {
            let (left, right) = line.split_once('\t').unwrap();
            let first: u8 = left.split('.').next().unwrap().parse().unwrap();
            assert_eq!((left, right), (address.as_str(), if first < 128 { "1" } else { "2" }));
        }
    }

    #[test]
    fn ipv4_text_is_taken_exactly_as_the_standard_library_takes_it() {
        let parts = [
            "", "0", "1", "9", "00", "01", "10", "99", "100", "255", "256", "300", "1000", "a", "-1", "+1",
            " 1",
        ];
        for a in parts {
            for b in parts {
                for text in [
                    format!("{a}.{b}.0.1"),
                    format!("1.2.{a}.{b}"),
                    format!("{a}.{b}"),
                    format!("1.2.3.{a}.{b}"),
                ] {
                    let wanted = text.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
                    assert_eq!(parse_v4(text.as_bytes()), wanted, "{text}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_exactly_when_the_standard_library_says_so(
            text in prop_oneof!["[0-9.]{0,16}", "[0-9a-f:.]{0,40}", ".{0,20}"]
        ) {
            let wanted = text.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
            prop_assert_eq!(parse_v4(text.as_bytes()), wanted);
        }

        #[test]
        fn any_bytes_give_the_answers_before_the_first_bad_line_and_its_number(
            lines in proptest::collection::vec(
                prop_oneof![
                    Just(b"10.0.0.1".to_vec()),
                    Just(b"2001:db8::1 # x".to_vec()),
                    Just(Vec::new()),
                    proptest::collection::vec(any::<u8>().prop_filter("ends no line", |b| *b != b'\n'), 0..20),
                ],
                0..30,
            ),
            size in 1_usize..64,
        ) {
            let mut batch = batch(&[("0.0.0.0/0", 3), ("::/0", 4)]);
            let mut out = Vec::new();
            let result = answer_stream(Dribble(&lines.join(&b'\n'), size), "stdin", &mut batch, &mut out);
            let mut wanted = String::new();
            let mut bad = None;
            for (number, line) in (1..).zip(&lines) {
                let line = line.split(|b| *b == b'#').next().unwrap().trim_ascii();
                match std::str::from_utf8(line).map(str::parse::<IpAddr>) {
                    _ if line.is_empty() => {}
                    Ok(Ok(address)) => {
                        let id = if address.is_ipv4() { 3 } else { 4 };
                        wanted += &format!("{}\t{id}\n", std::str::from_utf8(line).unwrap());
                    }
                    _ => {
                        bad = Some(format!("stdin:{number}: "));
                        break;
                    }
                }
            }
            prop_assert_eq!(String::from_utf8(out).unwrap(), wanted);
            match (result, bad) {
                (Ok(()), None) => {}
                (Err(error), Some(start)) => prop_assert!(error.to_string().starts_with(&start), "{error}"),
                (result, bad) => prop_assert!(false, "{result:?} where {bad:?} was wanted"),
            }
        }
    }

    #[test]
    fn decimals() {
        for value in [0, 1, 9, 10, 99, 100, 16_777_215, u32::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
