//! tito's own engine.
pub(crate) mod backend;
pub(crate) mod cpu;
pub(crate) mod model;
pub(crate) mod weights;
