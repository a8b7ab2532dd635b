//! Where records come from: the live rings, a recording, or captures.

pub mod ring;
pub mod recording;
pub mod pcap;
pub mod capture;
