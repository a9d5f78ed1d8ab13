//! Sizes and times as people write them on a command line.
//!
//! A size is a whole number of bytes, or a number followed by `K`, `M`, `G` or `T`, which are powers
//! of 1,024 (`64K` is 65,536 bytes); `KiB`, `MiB`, `GiB` and `TiB` mean the same, and so does a small
//! letter. Decimal units (`kB`, `MB`) are refused rather than guessed at.

use std::time::Duration;

/// The longest time a run may be asked to take, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// Reads a size in bytes.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits_len);
    if digits.is_empty() {
        return Err(format!(
            "\"{text}\" is not a size: write bytes, or a number with K, M, G or T"
        ));
    }
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => {
            return Err(format!(
                "\"{unit}\" is not a unit of size: use K, M, G or T (powers of 1024)"
            ));
        }
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("\"{text}\" is larger than any size this program can count"))
}

/// Reads a size in bytes that must not be zero.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub fn parse_size_above_zero(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a size of 0 bytes moves nothing: give at least 1".to_owned()),
        len_bytes => Ok(len_bytes),
    }
}

/// Reads the size of a buffer in memory: 1 byte to 1 GiB.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub fn parse_buffer_size(text: &str) -> Result<usize, String> {
    let len_bytes = parse_size_above_zero(text)?;
    if len_bytes > 1 << 30 {
        return Err(format!("a buffer of {text} is more than this program takes: 1G at most"));
    }
    usize::try_from(len_bytes).map_err(|_| format!("\"{text}\" does not fit this machine"))
}

/// Reads a time in seconds, with or without a fraction, between a hundredth and a day.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if (0.01..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Ok(_) => Err(format!("{text} seconds is out of range: give 0.01 to {SECONDS_MAX}")),
        Err(_) => Err(format!("\"{text}\" is not a number of seconds")),
    }
}

/// Reads a rate in bits a second: a whole number above zero, or one followed by `K`, `M` or `G`, which
/// are powers of 1,000 here, as everywhere where rates of links are told.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits_len);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => Some(1),
        "k" => Some(1_000),
        "m" => Some(1_000_000),
        "g" => Some(1_000_000_000),
        _ => None,
    };
    let bits_per_second = digits.parse::<u64>().ok().zip(factor);
    bits_per_second
        .and_then(|(number, factor)| number.checked_mul(factor))
        .filter(|rate| *rate > 0)
        .ok_or_else(|| {
            format!("\"{text}\" is no rate: give bits a second, such as 100M (powers of 1000)")
        })
}

/// Writes a size the way [`parse_size`] reads it, as short as it stays exact.
#[must_use]
pub fn format_size(len_bytes: u64) -> String {
    for (unit, shift) in [("T", 40), ("G", 30), ("M", 20), ("K", 10)] {
        if len_bytes != 0 && len_bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", len_bytes >> shift);
        }
    }
    len_bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_numbers_and_every_unit() {
        for (text, len_bytes) in [
            ("0", 0),
            ("1", 1),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("3M", 3 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(len_bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size_and_says_why() {
        for (text, part) in [
            ("", "not a size"),
            ("K", "not a size"),
            ("-1", "not a size"),
            ("1.5M", "not a unit"),
            ("10MB", "not a unit"),
            ("12 K", "not a unit"),
            ("99999999999999999999", "larger than"),
            ("99999999T", "larger than"),
        ] {
            let sentence = parse_size(text).unwrap_err();
            assert!(sentence.contains(part), "{text}: {sentence}");
        }
        assert!(parse_size_above_zero("0").is_err());
        assert!(parse_buffer_size("2G").is_err());
        assert_eq!(parse_buffer_size("1M"), Ok(1 << 20));
    }

    #[test]
    fn writes_what_it_reads() {
        for len_bytes in [0, 1, 1_023, 1_024, 1_500, 65_536, 1 << 20, (1 << 30) + 1, 1 << 40] {
            assert_eq!(parse_size(&format_size(len_bytes)), Ok(len_bytes));
        }
    }

    #[test]
    fn reads_rates_in_powers_of_a_thousand() {
        for (text, rate) in
            [("1", 1), ("64k", 64_000), ("100M", 100_000_000), ("2G", 2_000_000_000)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "0", "0M", "M", "-1", "1.5G", "10Mbit", "99999999999999G"] {
            assert!(parse_rate(text).is_err_and(|it| it.contains("no rate")), "{text}");
        }
    }

    #[test]
    fn reads_seconds_within_bounds() {
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_seconds("2s"), Ok(Duration::from_secs(2)));
        for text in ["", "0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
