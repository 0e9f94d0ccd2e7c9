//! The engine of tito's own.

mod cpu;
