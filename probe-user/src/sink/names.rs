//! Names for what events carry as numbers: learnt from facts, used by every sink.

use crate::clock::{ClockAnchor, MonoNs};
use crate::event::{Departed, Fact, InterfaceFact, InterfaceId, RunFact};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// Most interfaces that have gone whose names are kept: as many targets as a run sums up, and as many
/// beside.
const MAX_DEPARTED: usize = 2_048;

/// What the facts of a run have told so far.
#[derive(Debug, Default)]
pub struct Names {
    clock: Option<ClockAnchor>,
    run: Option<RunFact>,
    interfaces: HashMap<InterfaceId, InterfaceFact>,
    departed: Departed,
    drop_reasons: HashMap<u32, String>,
    symbols: HashMap<u64, String>,
}

impl Names {
    /// Whether a fact teaches anything here.
    #[must_use]
    pub const fn learns_from(fact: &Fact) -> bool {
        fact.learners().names
    }

    /// Takes a fact in.
    pub fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Run(run) => self.run = Some(run.clone()),
            Fact::Clock(anchor) => self.clock = Some(*anchor),
            Fact::Interface(interface) => {
                self.departed.come(interface.id);
                self.interfaces.insert(interface.id, interface.clone());
            }
            Fact::Gone { interface, .. } => {
                self.departed.leave(*interface, MonoNs(0));
                if let Some(old) = self.departed.beyond(MAX_DEPARTED) {
                    self.interfaces.remove(&old);
                }
            }
            Fact::DropReason { number, name } => {
                self.drop_reasons.insert(*number, name.clone());
            }
            Fact::Symbol { address, name } => {
                self.symbols.insert(*address, name.clone());
            }
            _ => debug_assert!(!Self::learns_from(fact)),
        }
    }

    /// Wall time of `at`; without a clock fact, counted from 1970.
    #[must_use]
    pub fn wall(&self, at: MonoNs) -> SystemTime {
        let unix_ns = self.clock.map_or(at.0, |clock| clock.unix_ns(at));
        SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns)
    }

    /// Wall time of `at` as RFC 3339 with nanoseconds.
    #[must_use]
    pub fn rfc3339(&self, at: MonoNs) -> String {
        humantime::format_rfc3339_nanos(self.wall(at)).to_string()
    }

    /// How the run judges, once known.
    #[must_use]
    pub const fn run(&self) -> Option<&RunFact> {
        self.run.as_ref()
    }

    /// Name of the signature at `index` of the run's list.
    #[must_use]
    pub fn signature(&self, index: usize) -> &str {
        self.run.as_ref().and_then(|run| run.signatures.get(index)).map_or("unknown", |signature| &signature.name)
    }

    /// What is known of an interface.
    #[must_use]
    pub fn interface(&self, id: InterfaceId) -> Option<&InterfaceFact> {
        self.interfaces.get(&id)
    }

    /// Name of an interface, without where it is.
    #[must_use]
    pub fn device(&self, id: InterfaceId) -> String {
        self.interface(id).map_or_else(|| format!("interface {}", id.ifindex), |interface| interface.name.clone())
    }

    /// Label of the interface that stands for a target.
    #[must_use]
    pub fn target(&self, id: InterfaceId) -> String {
        match self.interface(id) {
            Some(interface) => interface.label.clone(),
            None if id == InterfaceId::default() => "unknown".to_owned(),
            None => format!("ifindex {}", id.ifindex),
        }
    }

    /// Name of a drop reason, else its number.
    #[must_use]
    pub fn drop_reason(&self, number: u32) -> String {
        self.drop_reasons.get(&number).cloned().unwrap_or_else(|| format!("reason {number}"))
    }

    /// Name of a kernel address, else the address.
    #[must_use]
    pub fn symbol(&self, address: u64) -> String {
        self.symbols.get(&address).cloned().unwrap_or_else(|| format!("{address:#x}"))
    }
}
