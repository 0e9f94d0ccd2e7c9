//! pydantic's lax mode, which vLLM's requests are declared in: which values pass for which types, what is made of those
//! that pass, and what is said of those that do not.
//!
//! This module knows values. It knows no endpoints, none of their fields, and no HTTP.

mod issue;
mod scalar;
mod schema;
mod walk;

pub(crate) use issue::{Complaint, Context, Issues};
pub(crate) use scalar::{coerced, truth};
pub(crate) use schema::{Field, Schema, Shape, branch, joined, labelled, optional, required, scalars};
pub(crate) use walk::{NotFinite, Walk};
