//! Numbers as vLLM reads them from a command line.

/// vLLM's numbers: `1k` is 1000, `1K` is 1024, likewise m, M, g, G, t, T; `25.6k` is 25600.
pub(super) fn human_readable_int(text: &str) -> Result<usize, String> {
    let error = || format!("expected a number such as 4096, 4k (4000) or 4K (4096), got {text:?}");
    let text = text.trim();
    let unit = match text.chars().last() {
        Some('k') => 1000_u64,
        Some('K') => 1 << 10,
        Some('m') => 1_000_000,
        Some('M') => 1 << 20,
        Some('g') => 1_000_000_000,
        Some('G') => 1 << 30,
        Some('t') => 1_000_000_000_000,
        Some('T') => 1 << 40,
        _ => 1,
    };
    let digits = if unit == 1 { text } else { &text[..text.len() - 1] };
    let number = match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(unit).ok_or_else(error)?,
        Err(_) => decimal(digits, unit).ok_or_else(error)?,
    };
    match usize::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(error()),
    }
}

/// A number over 0.
pub(super) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("expected a number over 0, got {text:?}"))
}

/// A share, over 0 and at most 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("expected a number over 0 and at most 1, got {text:?}"))
}

/// The numbers of [`human_readable_int`], and 0.
pub(super) fn human_readable_size(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { human_readable_int(text).map(|number| number as u64) }
}

/// Less would hold hardly one response, and clients would meet errors.
const LEAST_STORE_BYTES: u64 = 1 << 20;

/// The room of a store.
pub(super) fn store_size(text: &str) -> Result<u64, String> {
    let size = human_readable_size(text)?;
    if size < LEAST_STORE_BYTES { Err("expected at least 1M".to_owned()) } else { Ok(size) }
}

/// Reads the same as a count of things.
pub(super) fn human_readable_count(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { human_readable_int(text) }
}

/// A decimal fraction of a decimal unit that is a whole number.
fn decimal(digits: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.')?;
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    if !unit.is_multiple_of(scale) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add(fraction.parse::<u64>().ok()? * (unit / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_vllm_reads_them() {
        for (text, number) in
            [("7", 7), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("1M", 1 << 20), ("2T", 1 << 41), (" 7 ", 7)]
        {
            assert_eq!(human_readable_int(text), Ok(number), "{text}");
        }
        for text in ["", "0", "-1", "k", "1.5", "1.5K", "1e3", "99999999999999999999", "1.k"] {
            assert!(human_readable_int(text).is_err(), "{text}");
        }
        assert_eq!((share("0.9"), share("1")), (Ok(0.9), Ok(1.0)));
        for text in ["0", "-0.5", "1.1", "NaN", "inf", "90%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!((human_readable_size("0"), human_readable_count("0")), (Ok(0), Ok(0)));
    }
}
