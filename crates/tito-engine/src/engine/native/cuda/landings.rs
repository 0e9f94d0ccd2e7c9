//! Memory of the host that what comes from the device can go to, while nothing does.

#[cfg(feature = "cuda")]
pub(super) type Landings = Vec<super::kernels::Landing>;
#[cfg(not(feature = "cuda"))]
pub(super) type Landings = ();
