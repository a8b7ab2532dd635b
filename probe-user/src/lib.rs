//! whylag's library.
