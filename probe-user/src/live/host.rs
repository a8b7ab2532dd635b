//! The host's facts in the stream: looked up while the programs are being loaded, said at the start; its
//! counters of losses once more at the end, so that what the run saw of them shows.

use crate::event::{Fact, InterfaceId};
use crate::host::{self, HostFact};
use crate::target::{Discovery, Selection};
use std::thread::{self, JoinHandle};

/// A look at the host that is under way.
#[derive(Debug)]
pub(super) struct HostLook {
    looking: Option<JoinHandle<Vec<HostFact>>>,
    /// Interfaces of the host's own namespace, whose counters are read.
    interfaces: Vec<String>,
}

impl HostLook {
    /// Begins, in a thread of its own.
    pub(super) fn begin(discovery: &Discovery, selection: &Selection) -> Self {
        let watched: Vec<InterfaceId> = selection.chosen.iter().map(|chosen| chosen.interface.id).collect();
        let home = discovery.home().map(|home| home.cookie);
        let counted = discovery.interfaces.iter().filter(|interface| Some(interface.id.netns) == home);
        let counted = counted.filter(|interface| interface.is_physical() || watched.contains(&interface.id));
        let interfaces: Vec<_> = counted.map(|interface| interface.name.clone()).collect();
        let (names, discovery) = (interfaces.clone(), discovery.clone());
        let look = move || {
            let mut facts = host::gather(&discovery, &watched);
            facts.push(host::counters(&names));
            facts
        };
        // Without a thread the run goes on without these facts.
        let looking = thread::Builder::new().name("host".to_owned()).spawn(look).ok();
        Self { looking, interfaces }
    }

    /// What was found; waits for the end of the look, which is bounded.
    pub(super) fn facts(&mut self) -> impl Iterator<Item = Fact> + use<> {
        let found = self.looking.take().and_then(|looking| looking.join().ok()).unwrap_or_default();
        found.into_iter().map(|fact| Fact::Host(Box::new(fact)))
    }

    /// The counters as of now.
    pub(super) fn counters(&self) -> Fact {
        Fact::Host(Box::new(host::counters(&self.interfaces)))
    }
}
