//! The wire shapes of SGLang's own calls that generate (0.5.23, `srt/managers/io_struct.py`).

pub(crate) mod generate;
pub(crate) mod prompts;
pub(crate) mod sampling;
