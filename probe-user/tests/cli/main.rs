//! The command line as its users meet it: flags, exit statuses, output, and bad input.
#![expect(clippy::unwrap_used, reason = "what must not fail in a test fails it")]

mod captures;
mod churn;
mod contract;
mod flame;
mod following;
mod incident;
mod join;
mod live;
mod made;
mod nics;
mod recordings;
mod report;
mod usage;
mod whylag;
