//! W3C's trace context: which trace a request belongs to, as its headers say.
//!
//! Headers come from anybody. One that is not exactly as the recommendation has it is no context, and the request begins a
//! trace of its own: <https://www.w3.org/TR/trace-context/>.

use super::ids::{SpanId, TraceId};

/// The header that names the trace.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The header of what tracing systems tell each other.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The length of a header of version 00; those of later versions may go on after a dash.
const LENGTH: usize = 55;
/// The most members of a state that are passed on.
const MOST_MEMBERS: usize = 32;
/// The most bytes of it. The recommendation asks for at least 512.
const MOST_STATE: usize = 512;

/// The span that a request is a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// Whether whoever made it records the trace.
    pub(super) sampled: bool,
    /// What tracing systems tell each other, passed on as it is.
    pub(super) state: String,
}

impl Parent {
    /// Reads the headers of a request. A request with several parents has none.
    pub(super) fn of_headers(parents: &[&[u8]], states: &[&[u8]]) -> Option<Self> {
        let [parent] = parents else { return None };
        let (trace_id, span_id, sampled) = traceparent(parent)?;
        Some(Self { trace_id, span_id, sampled, state: tracestate(states).unwrap_or_default() })
    }
}

/// `00-<trace>-<span>-<flags>`, all in lower case.
fn traceparent(text: &[u8]) -> Option<(TraceId, SpanId, bool)> {
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let dashes = [known[2], known[35], known[52]] == *b"---";
    let [version] = hex(&known[..2])?;
    let goes_on = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    let trace_id: TraceId = hex(&known[3..35])?;
    let span_id: SpanId = hex(&known[36..52])?;
    let [flags] = hex(&known[53..])?;
    let is_valid = dashes && goes_on && trace_id != TraceId::default() && span_id != SpanId::default();
    is_valid.then_some((trace_id, span_id, flags & 1 == 1))
}

fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The members of all headers in one line; `None` if they are too many, too long, or not members.
fn tracestate(headers: &[&[u8]]) -> Option<String> {
    // Each is one of many that may be empty: their lengths bound what is read.
    if headers.iter().map(|header| header.len()).sum::<usize>() > MOST_STATE {
        return None;
    }
    let mut members = Vec::new();
    for header in headers {
        let header = str::from_utf8(header).ok()?;
        for member in
            header.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty())
        {
            let (key, value) = member.split_once('=')?;
            let is_new = members.iter().all(|(known, _)| *known != key);
            if !is_key(key) || !is_value(value) || !is_new || members.len() == MOST_MEMBERS {
                return None;
            }
            members.push((key, value));
        }
    }
    let members: Vec<String> = members.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(members.join(","))
}

fn is_key(key: &str) -> bool {
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '*' | '/' | '@');
    let first = key.chars().next();
    key.len() <= 256 && first.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) && key.chars().all(rest)
}

fn is_value(value: &str) -> bool {
    let is_printed = |c: char| matches!(c, ' '..='~') && !matches!(c, ',' | '=');
    (1..=256).contains(&value.len()) && value.chars().all(is_printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parent(header: &str) -> Option<Parent> {
        Parent::of_headers(&[header.as_bytes()], &[])
    }

    #[test]
    fn the_example_of_the_recommendation_is_read() {
        let read = parent(KNOWN).unwrap();
        assert_eq!(u128::from_be_bytes(read.trace_id), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(u64::from_be_bytes(read.span_id), 0x00f0_67aa_0ba9_02b7);
        assert_eq!((read.sampled, read.state.as_str()), (true, ""));
        assert!(!parent(&KNOWN.replace("-01", "-02")).unwrap().sampled);
        // A later version may say more.
        assert_eq!(parent(&KNOWN.replacen("00", "cc", 1)), parent(KNOWN));
        assert_eq!(parent(&format!("{}-more", KNOWN.replacen("00", "cc", 1))), parent(KNOWN));
    }

    #[test]
    fn garbage_is_no_parent() {
        let long = "0".repeat(100_000);
        for header in [
            "",
            "garbage",
            &long,
            &format!("{KNOWN}{long}"),
            &format!("{KNOWN}-more"),
            &KNOWN[..54],
            &KNOWN.to_uppercase(),
            &KNOWN.replacen("00", "ff", 1),
            &KNOWN.replacen('-', "_", 1),
            &KNOWN.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &KNOWN.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &KNOWN.replace("4b", "zz"),
            &KNOWN.replace("4b", "+b"),
            &format!("{}.more", KNOWN.replacen("00", "cc", 1)),
        ] {
            assert_eq!(parent(header), None, "{header:.80}");
        }
        assert_eq!(Parent::of_headers(&[b"\xff\xfe"], &[]), None);
        assert_eq!(Parent::of_headers(&[], &[]), None);
        assert_eq!(Parent::of_headers(&[KNOWN.as_bytes(), KNOWN.as_bytes()], &[]), None);
    }

    #[test]
    fn a_state_is_passed_on_or_left_out_as_a_whole() {
        let state = |headers: &[&str]| {
            let headers: Vec<&[u8]> = headers.iter().map(|header| header.as_bytes()).collect();
            Parent::of_headers(&[KNOWN.as_bytes()], &headers).unwrap().state
        };
        assert_eq!(
            state(&["congo=t61rcWkgMzE, rojo=00f0", "tenant@system=a b"]),
            "congo=t61rcWkgMzE,rojo=00f0,tenant@system=a b"
        );
        let many = vec!["a=1"; 40].join(",");
        let numbered: Vec<String> = (0..33).map(|number| format!("k{number}=1")).collect();
        for bad in
            ["a", "A=1", "a=1,a=2", "a=\u{7f}", "a=b=c", &many, &numbered.join(","), &format!("a={}", "x".repeat(600))]
        {
            assert_eq!(state(&[bad]), "", "{bad:.80}");
        }
        assert_eq!(state(&["", " , "]), "");
    }
}
