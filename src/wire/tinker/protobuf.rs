//! The result of a sampling request, in protocol buffers (`proto/tinker_public_pb2.pyi`).

use prost::Message;

/// The log-prob of an alternative that is not there, beside the id 0.
pub(crate) const ABSENT_LOGPROB: f32 = -99999.0;

/// What ended a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum StopReason {
    /// A stop token or a stop text.
    Stop = 0,
    /// The tokens to sample ran out.
    Length = 1,
}

/// The most probable tokens of each position: two matrices of `length` rows and `k` columns.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TopkLogprobs {
    /// int32.
    #[prost(bytes = "vec", tag = "1")]
    pub token_ids: Vec<u8>,
    /// float32.
    #[prost(bytes = "vec", tag = "2")]
    pub logprobs: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub k: u32,
    #[prost(uint32, tag = "4")]
    pub length: u32,
}

/// The type of a tensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum DType {
    /// It is not said.
    Unspecified = 0,
    /// float32.
    Float32 = 1,
}

/// The cells of a tensor that are there, row by row.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SparseCsr {
    #[prost(bytes = "vec", tag = "1")]
    pub values: Vec<u8>,
    /// int64.
    #[prost(bytes = "vec", tag = "2")]
    pub crow_indices: Vec<u8>,
    /// int64.
    #[prost(bytes = "vec", tag = "3")]
    pub col_indices: Vec<u8>,
}

/// A tensor: one of `dense` and `sparse_csr` is there.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tensor {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub dense: Option<Vec<u8>>,
    #[prost(message, optional, tag = "2")]
    pub sparse_csr: Option<SparseCsr>,
    #[prost(enumeration = "DType", tag = "3")]
    pub dtype: i32,
    #[prost(int64, repeated, tag = "4")]
    pub shape: Vec<i64>,
}

/// One continuation.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SampledSequence {
    #[prost(enumeration = "StopReason", tag = "1")]
    pub stop_reason: i32,
    /// int32: every sampled token, what ended the sequence included.
    #[prost(bytes = "vec", tag = "2")]
    pub tokens: Vec<u8>,
    /// float32, one for each token.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub logprobs: Option<Vec<u8>>,
    #[prost(message, optional, tag = "4")]
    pub topk_sampled_logprobs: Option<TopkLogprobs>,
}

/// The answer to a sampling request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SampleResponse {
    #[prost(message, repeated, tag = "1")]
    pub sequences: Vec<SampledSequence>,
    /// float32, one for each token of the prompt; NaN where there is none.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub prompt_logprobs: Option<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    pub topk_prompt_logprobs: Option<TopkLogprobs>,
    #[prost(int32, tag = "4")]
    pub prompt_cache_hit_tokens: i32,
    /// The log-probs of the ids that the request named.
    #[prost(message, optional, tag = "5")]
    pub target_prompt_logprobs: Option<Tensor>,
}
