//! How the body of a request becomes the type that an endpoint declares.

pub(super) mod extract;
pub(super) mod validate;
