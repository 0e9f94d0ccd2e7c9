//! Prometheus text, as Python's client writes it: labels by name, floats as Python prints them, `_created` series.

use std::{fmt::Write as _, sync::atomic::Ordering};

use super::{
    families::Family,
    registry::{Metric, Registry, Series, Value, now},
};
use crate::engine::{AdapterLimits, AdapterLoad};

/// The media type of the page, which is what vLLM says.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

/// Writes all families.
pub(super) fn write(registry: &Registry) -> String {
    let mut text = String::with_capacity(1 << 16);
    registry.each(|name, family, series| write_family(&mut text, name, family, series));
    text
}

/// Writes one family of one series without labels.
pub(super) fn write_single(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    head(text, name, kind, help);
    line(text, name, &[], None, value);
}

/// Writes what the weights are called. There is one series at a time, however often they are replaced.
pub(super) fn write_weight_version(text: &mut String, version: &str) {
    let name = "tito:weight_version_info";
    head(text, name, "gauge", "What the weights are called that sample now.");
    line(text, name, &[("version".to_owned(), version.to_owned())], None, 1.0);
}

/// Writes which adapters are asked for, as vLLM does; the value is the time. vLLM leaves a series behind for each set of
/// names that there ever was, of which the youngest counts: here there is that one.
pub(super) fn write_adapters(text: &mut String, AdapterLimits { max_loras, .. }: AdapterLimits, load: &AdapterLoad) {
    let name = "vllm:lora_requests_info";
    head(text, name, "gauge", "Running stats on lora requests.");
    let labels = [
        ("max_lora", max_loras.to_string()),
        ("waiting_lora_adapters", load.waiting.join(",")),
        ("running_lora_adapters", load.running.join(",")),
    ];
    line(text, name, &labels.map(|(name, value)| (name.to_owned(), value)), None, now());
}

fn write_family(text: &mut String, name: &str, family: Option<&Family>, series: &Series) {
    let Some(first) = series.values().next() else { return };
    let help = family.map_or("", |family| family.help);
    let kind = match &first.value {
        Value::Counter(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Distribution(distribution) if distribution.read().0.is_empty() => "summary",
        Value::Distribution(_) => "histogram",
    };
    head(text, name, kind, help);
    for (labels, metric) in ordered(family, series) {
        match &metric.value {
            Value::Counter(count) => line(text, name, labels, None, float(count.load(Ordering::Relaxed))),
            Value::Gauge(bits) => line(text, name, labels, None, f64::from_bits(bits.load(Ordering::Relaxed))),
            Value::Distribution(distribution) => {
                let (buckets, count, sum) = distribution.read();
                let bucket = format!("{name}_bucket");
                for (bound, count) in &buckets {
                    line(text, &bucket, labels, Some(&number(*bound)), float(*count));
                }
                if !buckets.is_empty() {
                    line(text, &bucket, labels, Some("+Inf"), float(count));
                }
                line(text, &format!("{name}_count"), labels, None, float(count));
                line(text, &format!("{name}_sum"), labels, None, sum);
            }
        }
    }
    if kind != "gauge" {
        let base = if kind == "counter" { name.strip_suffix("_total").unwrap_or(name) } else { name };
        let created = format!("{base}_created");
        head(text, &created, "gauge", help);
        for (labels, metric) in ordered(family, series) {
            line(text, &created, labels, None, metric.created);
        }
    }
}

/// The series in the order of the family's own, then the others.
fn ordered<'s>(family: Option<&Family>, series: &'s Series) -> Vec<(&'s Vec<(String, String)>, &'s Metric)> {
    let declared = family.map_or(&[][..], |family| family.series);
    let rank = |labels: &[(String, String)]| {
        let is_this = |wanted: &&&[(&str, &str)]| {
            wanted.iter().all(|(name, value)| labels.iter().any(|(n, v)| n == name && v == value))
        };
        declared.iter().position(|wanted| is_this(&wanted)).unwrap_or(declared.len())
    };
    let mut ordered: Vec<_> = series.iter().collect();
    ordered.sort_by_key(|(labels, _)| rank(labels));
    ordered
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &[(String, String)], bound: Option<&str>, value: f64) {
    text.push_str(name);
    let mut written: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if let Some(bound) = bound {
        let at = written.partition_point(|(name, _)| *name < "le");
        written.insert(at, ("le", bound));
    }
    for (index, (name, value)) in written.iter().enumerate() {
        let _ = write!(text, "{}{name}=\"{}\"", if index == 0 { '{' } else { ',' }, escaped(value));
    }
    if !written.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {}", number(value));
}

/// The value of a label. Of control characters, the format has only a way to write the end of a line; what reads the page
/// may be a terminal, and the others mean something to it.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' => text.push_str("\\\""),
            c if c.is_control() => text.push(char::REPLACEMENT_CHARACTER),
            c => text.push(c),
        }
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn float(count: u64) -> f64 {
    count as f64
}

/// A float as Python's client writes it: with a point, from a million on with an exponent.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let plain = format!("{value:?}");
    let Some(point) = plain.find('.').filter(|point| value > 0.0 && *point > 6 && !plain.contains('e')) else {
        return plain;
    };
    let digits = plain.replace('.', "");
    let mantissa = format!("{}.{}", &digits[..1], &digits[1..]);
    let mantissa = mantissa.trim_end_matches(['0', '.']);
    format!("{mantissa}e+0{}", point - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_pythons_client_writes_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.001, "0.001"),
            (16_384.0, "16384.0"),
            (4_843_180_032.0, "4.843180032e+09"),
            (1_795_226_028.470_716, "1.795226028470716e+09"),
            (1_000_000.0, "1e+06"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn labels_cannot_break_out_of_their_quotes() {
        let mut text = String::new();
        line(&mut text, "a", &[("b".into(), "x\"\\\n".into())], None, 1.0);
        assert_eq!(text, "a{b=\"x\\\"\\\\\\n\"} 1.0\n");
    }

    #[test]
    fn labels_say_nothing_to_a_terminal() {
        let mut text = String::new();
        line(&mut text, "a", &[("b".into(), "\u{1b}[2J\r\0\u{9b}é".into())], None, 1.0);
        assert_eq!(text, "a{b=\"\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}é\"} 1.0\n");
    }
}
