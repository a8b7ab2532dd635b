//! Worlds, workloads, faults, ground truth and the score.
//!
//! A [`case`] is one row of a table: a world, a workload, a fault, and the verdict that is right.
//! [`run`] builds the [`world`] from namespaces that live only as long as their processes, starts
//! the [`workload`]s, waits for a quiet control period, injects the fault, and reads the
//! [`truth`] from counters that whylag does not use. [`score`] compares.
//!
//! Some cases have a victim of the lab's own, others a server of Debian's: [`software`]. Some have
//! a guest with a kernel of its own: [`vmm`].
//!
//! Everything that the lab starts is on a [`leash`]: it dies with the lab, however the lab ends.

pub mod case;
mod cast;
pub mod cgroup;
pub mod cli;
pub mod clock;
pub mod contract;
pub mod demo;
mod device;
pub mod excerpt;
pub mod figures;
mod filled;
pub mod firewall;
pub mod guest;
mod halves;
pub mod leash;
pub mod machine;
pub mod message;
pub mod need;
pub mod netns;
pub mod path;
pub mod picture;
pub mod process;
pub mod receive;
pub mod receiving;
pub mod report;
pub mod residence;
pub mod run;
pub mod score;
pub mod software;
pub mod truth;
pub mod turn;
pub mod vmm;
pub mod whylag;
pub mod workload;
pub mod world;
