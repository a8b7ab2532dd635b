//! Targets: what there is on the host to watch, and what of it is watched.
//!
//! [`Discovery::scan`] looks at namespaces, interfaces, VMs and containers. [`Selection::choose`]
//! takes that value and the operator's [`Targets`] and says what to hook and whom to watch; it is
//! pure. [`Changes`] tells when to look again, and [`task_facts`] describes threads. Nothing here
//! changes the host, and no arguments or environment of a process are kept.

mod container;
mod discovery;
mod link;
mod machine;
mod model;
mod netlink;
mod netns;
mod port;
mod process;
mod select;
mod task;
mod watch;

pub use discovery::Discovery;
pub use model::{
    Container, Disk, Gap, Interface, LinkState, Machine, Namespace, Offloads, Peer, QueueLimits, Rings, VmThread,
    VmThreadRole, Vmm,
};
pub(crate) use netns::cookie as namespace_cookie;
pub use port::Transport;
pub use select::{Chosen, Hint, Searched, Selection, SelectionError, Targets};
pub use task::{task_fact, task_facts};
pub use watch::{Change, Changes, WatchError};
