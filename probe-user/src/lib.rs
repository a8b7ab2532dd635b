//! whylag: where did this health check's time go, and who took it?
//!
//! The modules stand in the order in which data flows through them:
//!
//! ```text
//!  kernel             wire             collector                                      outside
//!  hooks ──▶ [header|body] ──▶ Event ──▶ Journey ──▶ Ledger ───┬─▶ JSON, recording, bundle
//!   emit          bytes    decode  order  correlate  attribute ├─▶ Flame ─▶ flame graph, Report ─▶ page
//!    │                                                         └─▶ Snapshot ─▶ text view
//!    │ Loss ──────────────────────────▶ loss ledger ──────────────▶ in every output
//! ```
//!
//! Everything between bytes and `Snapshot` is pure: no clock, no map, no socket, no channel. Time
//! enters only inside events, so a replay of a recording equals the live run.

// What a check looks like, and where to look for it.
pub mod signature;
pub mod target;

// Kernel programs: what there is, what this host can do, how they come into the kernel.
pub mod hooks;
pub mod capability;
pub mod kernel;
pub mod load;
pub mod doctor;

// Files that the operator names.
mod file;

// What the host is like, and what whylag costs it.
pub mod host;

// Bytes to events.
pub mod source;
pub mod event;
pub mod stack;
pub mod counters;
pub mod sender;
pub mod level;
pub mod receive;
pub mod rx_ring;
pub mod clock;
pub mod loss;

// Events to journeys, ledgers and verdicts.
pub mod journey;
pub mod attribution;
pub mod symbols;
pub mod symbolize;
pub mod summary;
pub mod flame;
pub mod timeline;

// The two halves of a VM's checks.
pub mod join;

// Results to the outside.
pub mod catalog;
pub mod sink;
pub mod bundle;
pub mod report;

// All of it, wired together.
pub mod pipeline;
pub mod live;
pub mod cli;
