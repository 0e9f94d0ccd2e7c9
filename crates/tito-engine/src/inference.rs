//! Ids to sampled tokens, by tito's own engine.
//!
//! [`NativeEngine::load`] loads a model, and [`Engine::generate`] gives a stream of [`EngineOutput`]s for a
//! [`SequenceRequest`]. Many requests may run at a time: they are computed together, and none changes a bit of another on a
//! processor. Dropping a stream aborts its sequence. The page of the crate has an example.
//!
//! The engine has a thread of its own, and its streams need no particular runtime.

pub use crate::{
    engine::{
        Engine, EngineError, EngineInfo, EngineLoad, EngineOutput, PromptOutput, SequenceRequest, TokenStream,
        WeightDtype, WeightTensor,
        native::{Device, Dtype, LoadError, NativeEngine, NativeSettings, WeightsSource},
    },
    sampling::{
        FinishReason, Logprobs, LogprobsMode, SampledToken, SamplingError, SamplingParams, TopLogprob,
        ValidSamplingParams,
    },
};
