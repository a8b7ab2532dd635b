//! The lab: small worlds in which a health check is made slow on purpose, in a known way, for a
//! known time, so that what whylag says about it can be marked right or wrong.

pub mod lab;
