//! tito's own engine.
pub(crate) mod backend;
pub(crate) mod cpu;
pub(crate) mod kv_cache;
pub(crate) mod model;
pub(crate) mod scheduler;
pub(crate) mod weights;
