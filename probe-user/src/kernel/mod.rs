//! What the running kernel says about itself: types, field offsets, devices.

pub mod btf;
pub mod offsets;
