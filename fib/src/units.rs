//! Sizes, rates and times as people write and read them, on command lines and in reports.

/// A number above 0 with an optional `K`, `M` or `G`, powers of 1024 in either case: `4096`, `64K`, `2g`. No sign, no fraction.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let (number, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(1 << shift).filter(|size| *size > 0)
}

/// A whole number with an optional `k`, `M` or `G` behind it, powers of 1000 in either case: `0`, `250`, `10k`, `2M`. Digits only.
#[must_use]
pub fn count(text: &str) -> Option<u64> {
    let (number, factor) = thousands(text)?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(factor)
}

fn thousands(text: &str) -> Option<(&str, u64)> {
    Some(match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1_000),
        b'm' => (&text[..text.len() - 1], 1_000_000),
        b'g' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    })
}

/// A finite number above 0, fractions allowed, with an optional `k`, `M` or `G` behind it, powers of 1000 in either case: `250`, `1.5M`.
#[must_use]
pub fn rate(text: &str) -> Option<f64> {
    let (number, factor) = thousands(text)?;
    let plain = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    #[expect(clippy::cast_precision_loss, reason = "a power of ten below 2^53")]
    let rate = number.parse::<f64>().ok().filter(|_| plain)? * factor as f64;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// `NAME=VALUE`, a parameter of an engine; the name is not empty.
#[must_use]
pub fn named_value(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some((name.to_owned(), value.to_owned()))
}

/// The inverse of [`size`], with the largest unit that gives a whole number.
#[must_use]
pub fn size_text(size: u64) -> String {
    match size {
        n if n >= 1 << 30 && n % (1 << 30) == 0 => format!("{}G", n >> 30),
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// A count or rate with three digits and `k`, `M`, `G` or `T`, powers of 1000; at most five characters below 1000 T.
#[must_use]
pub fn count_text(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut scaled, mut unit) = (value, 0);
    // 999.5 would be shown as 1000.
    while scaled.abs() >= 999.5 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / 1e3, unit + 1);
    }
    let digits = match scaled.abs() {
        _ if scaled.fract() == 0.0 && unit == 0 => 0,
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{}", UNITS[unit])
}

/// Nanoseconds with about three digits and a unit.
#[must_use]
pub fn time_text(ns: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds below 2^53")]
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, wanted) in
            [("1", 1), ("4K", 4096), ("2k", 2048), ("512M", 512 << 20), ("4G", 4 << 30), ("3g", 3 << 30)]
        {
            assert_eq!(size(text), Some(wanted), "{text}");
        }
        for text in
            ["", "K", "0", "0K", "-1", "+1", "1.5M", "1T", "x", "99999999999G", "18446744073709551615K", "é"]
        {
            assert_eq!(size(text), None, "{text}");
        }
        assert_eq!([1 << 32, 96 << 20, 4096, 100].map(size_text), ["4G", "96M", "4K", "100"]);
    }

    #[test]
    fn rates() {
        assert_eq!(["250", "1.5M", ".5K", "10k", "2g"].map(rate), [250.0, 1.5e6, 500.0, 1e4, 2e9].map(Some));
        for text in ["", "0", "k", "-1k", "+5", "inf", "nan", "1T", "é"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    #[test]
    fn counts() {
        assert_eq!(
            ["0", "250", "10k", "10K", "2M", "1g"].map(count),
            [0, 250, 10_000, 10_000, 2_000_000, 1_000_000_000].map(Some)
        );
        for text in ["", "k", "-1", "+1", "1.5k", "1T", "99999999999999999999", "99999999999999G", "é"] {
            assert_eq!(count(text), None, "{text}");
        }
    }

    #[test]
    fn parameters() {
        assert_eq!(named_value("hash=murmur"), Some(("hash".into(), "murmur".into())));
        assert_eq!(named_value("x=a=b"), Some(("x".into(), "a=b".into())));
        assert!(named_value("=1").is_none() && named_value("hash").is_none());
    }

    #[test]
    fn counts_have_three_digits() {
        let texts = [
            (0.0, "0"),
            (7.0, "7"),
            (0.25, "0.25"),
            (99.96, "100"),
            (999.0, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (14_880_952.0, "14.9M"),
            (9_999_999_999.0, "10.0G"),
            (2e15, "2000T"),
        ];
        texts.into_iter().for_each(|(value, text)| assert_eq!(count_text(value), text));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(
            [999, 1_500, 2_000_000, 3_000_000_000].map(time_text),
            ["999 ns", "1.50 us", "2.00 ms", "3.00 s"]
        );
    }
}
