//! The control plane over HTTP: the paths, bodies and answers of vLLM, SGLang, AReaL, prime-rl and SkyRL, each of which
//! is a call or two of `control`.
//!
//! Owns the shapes. Refuses to know which call is possible in which state. A call that changes something always runs to
//! its end, even if its client does not wait for the answer.

mod areal;
mod body;
mod calls;
mod error;
mod info;
mod labels;
mod lora;
mod lora_tensors;
mod meters;
mod pausing;
mod query;
mod served;
mod sglang;
mod sglang_updates;
mod sleeping;
mod vllm;
mod weights;

use axum::{
    Router, middleware,
    routing::{MethodRouter, get},
};

pub use self::{
    calls::Admin,
    error::{Refusal, refused},
    info::of_blocks,
    served::Served,
};
use self::{
    calls::{Answered, Shared, json, posted},
    error::AdminError,
};

/// Returns every route, by its path.
fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    let mut routes = vllm::routes();
    routes.extend(weights::routes());
    routes.extend(sglang::routes());
    routes.extend(sglang_updates::routes());
    routes.extend(lora::routes());
    routes.extend(areal::routes());
    routes.extend(info::routes());
    routes
}

/// The paths of vLLM's calls about adapters.
pub const ADAPTER_PATHS: [&str; 2] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

/// Returns the control plane.
pub fn router(admin: Shared) -> Router {
    router_of(routes().into_iter(), admin)
}

fn router_of(calls: impl Iterator<Item = (&'static str, MethodRouter<Shared>)>, admin: Shared) -> Router {
    let router = calls.fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    let only_known = middleware::from_fn_with_state(Shared::clone(&admin), query::only_known);
    router.route_layer(only_known).with_state(admin)
}

/// Returns vLLM's calls about adapters only.
pub fn adapters_router(admin: Shared) -> Router {
    router_of(routes().into_iter().filter(|(path, _)| ADAPTER_PATHS.contains(path)), admin)
}

/// Returns the paths of the control plane.
pub fn paths() -> Vec<&'static str> {
    routes().into_iter().map(|(path, _)| path).collect()
}

/// Returns the same paths, but for some, each of which says how they are opened.
pub fn closed(but: &[&str]) -> Router {
    let refuse = || async { error::closed() };
    let paths = paths().into_iter().filter(|path| !but.contains(path));
    paths.fold(Router::new(), |router, path| router.route(path, get(refuse).post(refuse)))
}
