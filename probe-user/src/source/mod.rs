//! Where records come from: the live rings, a recording, or captures; and how a run's records come to
//! another place while it goes on.

pub mod ring;
pub mod recording;
pub mod growing;
pub mod address;
pub mod sending;
pub mod foreign;
pub mod pcap;
pub mod capture;
