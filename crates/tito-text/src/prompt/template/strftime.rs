//! Python's `strftime` of a local time without zone, in the C locale.

use std::fmt::Write as _;

use time::OffsetDateTime;

/// Formats a time; an error names the directive that is not known.
pub(super) fn strftime(now: OffsetDateTime, format: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut directive = chars.next();
        let padded = directive != Some('-');
        if !padded {
            directive = chars.next();
        }
        let written = match directive {
            Some(directive) => write_directive(&mut text, now, directive, padded),
            None => None,
        };
        if written.is_none() {
            let flag = if padded { "" } else { "-" };
            return Err(format!(
                "unknown strftime directive '%{flag}{}'",
                directive.map_or_else(String::new, String::from)
            ));
        }
    }
    Ok(text)
}

fn write_directive(text: &mut String, now: OffsetDateTime, directive: char, padded: bool) -> Option<()> {
    let weekday = now.weekday().to_string();
    let month = now.month().to_string();
    let (hour, minute, second) = now.to_hms();
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    if let Some((number, width)) = match directive {
        'd' => Some((now.day().into(), 2)),
        'm' => Some((u32::from(u8::from(now.month())), 2)),
        'H' => Some((hour.into(), 2)),
        'I' => Some((hour12.into(), 2)),
        'M' => Some((minute.into(), 2)),
        'S' => Some((second.into(), 2)),
        'j' => Some((now.ordinal().into(), 3)),
        'y' => Some((now.year().rem_euclid(100).unsigned_abs(), 2)),
        'U' => Some((now.sunday_based_week().into(), 2)),
        'W' => Some((now.monday_based_week().into(), 2)),
        'V' => Some((now.iso_week().into(), 2)),
        _ => None,
    } {
        return write!(text, "{number:0width$}", width = if padded { width } else { 0 }).ok();
    }
    if !padded {
        return None;
    }
    let composite = |format: &str| strftime(now, format).ok();
    match directive {
        '%' => text.push('%'),
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'a' => text.push_str(&weekday[..3]),
        'A' => text.push_str(&weekday),
        'b' | 'h' => text.push_str(&month[..3]),
        'B' => text.push_str(&month),
        'p' => text.push_str(if hour < 12 { "AM" } else { "PM" }),
        'Y' => write!(text, "{}", now.year()).ok()?,
        'e' => write!(text, "{:2}", now.day()).ok()?,
        'f' => write!(text, "{:06}", now.microsecond()).ok()?,
        'u' => write!(text, "{}", now.weekday().number_from_monday()).ok()?,
        'w' => write!(text, "{}", now.weekday().number_days_from_sunday()).ok()?,
        'G' => write!(text, "{}", now.to_iso_week_date().0).ok()?,
        // A time without zone has neither offset nor name.
        'z' | 'Z' => {}
        'c' => text.push_str(&composite("%a %b %e %H:%M:%S %Y")?),
        'D' | 'x' => text.push_str(&composite("%m/%d/%y")?),
        'F' => text.push_str(&composite("%Y-%m-%d")?),
        'R' => text.push_str(&composite("%H:%M")?),
        'T' | 'X' => text.push_str(&composite("%H:%M:%S")?),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn directives_are_written_as_python_writes_them() {
        let now = datetime!(2024-07-04 15:06:09.000123 UTC);
        for (format, text) in [
            ("%d %b %Y", "04 Jul 2024"),
            ("%B %-d, %Y", "July 4, 2024"),
            ("%A, %B %d, %Y", "Thursday, July 04, 2024"),
            ("%Y-%m-%d %H:%M:%S.%f", "2024-07-04 15:06:09.000123"),
            ("%I:%M %p %-I%%", "03:06 PM 3%"),
            ("%a %j %-j %y %e %u %w %F %T", "Thu 186 186 24  4 4 4 2024-07-04 15:06:09"),
            ("%U %W %V %G %c %z", "26 27 27 2024 Thu Jul  4 15:06:09 2024 "),
        ] {
            assert_eq!(strftime(now, format).unwrap(), text);
        }
    }

    #[test]
    fn unknown_directives_are_refused() {
        let now = datetime!(2024-07-04 15:06:09 UTC);
        for format in ["%Q", "%", "%-", "%-A"] {
            assert!(strftime(now, format).is_err(), "{format}");
        }
    }
}
