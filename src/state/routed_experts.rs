//! The experts that tokens went through, as answers show them.

use super::Api;
use crate::{
    engine::{RouteShape, Routes},
    wire::routed_experts::{of_nemo_rl, of_sglang, of_vllm},
};

impl Api {
    /// The `routed_experts` of a choice; `None` where they are not shown.
    pub(crate) fn routed_experts(&self, routes: Option<&Routes>) -> Option<String> {
        self.written(routes, of_vllm)
    }

    /// The `routed_experts` of a message that shows its ids.
    pub(crate) fn routed_experts_of_message(&self, routes: Option<&Routes>) -> Option<String> {
        self.written(routes, of_nemo_rl)
    }

    /// The `routed_experts` of SGLang's `meta_info`.
    pub(crate) fn routed_experts_of_meta_info(&self, routes: Option<&Routes>) -> Option<String> {
        self.written(routes, of_sglang)
    }

    fn written(&self, routes: Option<&Routes>, write: fn(&RouteShape, &Routes) -> String) -> Option<String> {
        Some(write(self.turns.generator.engine().route_shape()?, routes?))
    }
}
