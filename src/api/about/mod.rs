//! Endpoints that say what the server is, has and does.

pub(super) mod capability;
pub(super) mod health;
pub(super) mod models;
pub(super) mod server_load;
pub(super) mod tokenizer_info;
