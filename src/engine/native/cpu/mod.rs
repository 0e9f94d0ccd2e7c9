//! The model's arithmetic on the processor.

mod kernels;
