//! OTLP's messages, as far as spans need them (`opentelemetry/proto/collector/trace/v1`, `trace/v1`, `common/v1`).

use prost::{Enumeration, Message, Oneof};

/// What a collector is sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// What it answers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What it did not take.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// The spans of one process.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of one library.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// What makes spans.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// One span.
#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "OTLP's names")]
pub(super) struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// 8 bytes, or none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// W3C's flags of the trace, and whether the parent is of another process.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// What a span is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum SpanKind {
    /// It is not said.
    Unspecified = 0,
    /// Work inside of the process.
    Internal = 1,
    /// A request that the process serves.
    Server = 2,
}

/// How a span ended.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(enumeration = "SpanEnd", tag = "3")]
    pub code: i32,
}

/// How a span can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum SpanEnd {
    /// Nothing is said of it.
    Unset = 0,
    /// Somebody says that it is good.
    Ok = 1,
    /// It is an error.
    Error = 2,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3, 4")]
    pub value: Option<Value>,
}

/// The kinds of values that are used here.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl KeyValue {
    /// An attribute of a name.
    pub(super) fn new(key: &str, value: impl Into<Value>) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
    }
}
