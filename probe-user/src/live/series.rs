//! Levels and counters of queues over time: read again and again, and said as facts where they changed.
//!
//! A thread of its own reads, since it enters network namespaces and the kernel may take its time.

use crate::clock::MonoNs;
use crate::event::Fact;
use crate::host::{CounterFact, queue_levels};
use crate::load::{Attachment, queues_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How often they are read, and how often while checks are slow.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_EVERY_SLOW: Duration = Duration::from_millis(200);
/// Most levels; beyond it, new ones are not taken.
const MOST: usize = 4_096;
/// Levels that fit into one record.
const TOLD_AT_ONCE: usize = 256;

/// What is read from now on.
#[derive(Debug)]
struct Order {
    every: Duration,
    interfaces: Vec<(String, Attachment)>,
}

/// Reads levels beside the run.
#[derive(Debug)]
pub(super) struct Series {
    orders: Sender<Order>,
    levels: Receiver<(MonoNs, Vec<CounterFact>)>,
    slow_checks: u64,
    interfaces: Vec<(String, Attachment)>,
    every: Duration,
}

impl Series {
    /// Begins; `None` without a thread, and the run goes on without.
    pub(super) fn begin() -> Option<Self> {
        let (orders, ordered) = mpsc::channel();
        let (tell, levels) = mpsc::channel();
        thread::Builder::new().name("levels".to_owned()).spawn(move || read(&ordered, &tell)).ok()?;
        Some(Self { orders, levels, slow_checks: 0, interfaces: Vec::new(), every: READ_EVERY })
    }

    /// Says what has been read by now, and has it read faster while checks are slow.
    pub(super) fn turn(&mut self, slow_checks: u64, interfaces: Vec<(String, Attachment)>, say: &mut dyn FnMut(&Fact)) {
        let every = if slow_checks > self.slow_checks { READ_EVERY_SLOW } else { self.every };
        for (at, levels) in self.levels.try_iter() {
            self.every = if slow_checks > self.slow_checks { READ_EVERY_SLOW } else { READ_EVERY };
            self.slow_checks = slow_checks;
            for part in levels.chunks(TOLD_AT_ONCE) {
                say(&Fact::Levels { at, levels: part.to_vec() });
            }
        }
        if every != self.every || interfaces != self.interfaces {
            (self.every, self.interfaces) = (every, interfaces.clone());
            // Where the thread has ended, nothing is said any more.
            let _ = self.orders.send(Order { every, interfaces });
        }
    }
}

/// Reads until the run is over.
fn read(orders: &Receiver<Order>, tell: &Sender<(MonoNs, Vec<CounterFact>)>) {
    let Ok(mut order) = orders.recv() else { return };
    let mut known = HashMap::new();
    loop {
        let at = super::clock::now();
        let changed = changes(&mut known, look(&order.interfaces));
        if !changed.is_empty() && tell.send((at, changed)).is_err() {
            return;
        }
        match orders.recv_timeout(order.every) {
            Ok(next) => order = next,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// All levels of now.
fn look(interfaces: &[(String, Attachment)]) -> BTreeMap<String, u64> {
    let mut levels: BTreeMap<String, u64> = queue_levels().into_iter().map(|level| (level.name, level.value)).collect();
    for (name, attachment) in interfaces {
        // An interface that has gone has no queues.
        for queue in queues_of(attachment).unwrap_or_default() {
            let title = queue.title(name);
            levels.extend(queue.levels().map(|(what, value)| (format!("{title} {what}"), u64::from(value))));
        }
    }
    levels
}

/// What is new or different.
fn changes(known: &mut HashMap<String, u64>, levels: BTreeMap<String, u64>) -> Vec<CounterFact> {
    let mut changed = Vec::new();
    for (name, value) in levels {
        let before = known.get(&name).copied();
        // What has never counted anything is not worth a word.
        if before.unwrap_or(0) == value || (before.is_none() && known.len() >= MOST) {
            continue;
        }
        known.insert(name.clone(), value);
        changed.push(CounterFact { name, value });
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::{changes, look};
    use crate::load::Attachment;
    use std::collections::{BTreeMap, HashMap};

    fn levels(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn only_what_changed_is_told() {
        let mut known = HashMap::new();
        let mut told = |of: &[(&str, u64)]| {
            changes(&mut known, levels(of)).into_iter().map(|level| (level.name, level.value)).collect::<Vec<_>>()
        };
        assert_eq!(told(&[("a", 0), ("b", 2)]), [("b".to_owned(), 2)]);
        assert_eq!(told(&[("a", 0), ("b", 2)]), []);
        assert_eq!(told(&[("a", 1), ("b", 0)]), [("a".to_owned(), 1), ("b".to_owned(), 0)]);
    }

    #[test]
    fn this_host_s_backlogs_are_read_and_an_interface_that_is_not_there_has_none() {
        let nowhere = Attachment { netns: None, ifindex: u32::MAX >> 1, name: "none".to_owned() };
        let levels = look(&[("none".to_owned(), nowhere)]);
        assert!(levels.keys().any(|name| name.starts_with("CPU 0 backlog")), "{levels:?}");
        assert!(!levels.keys().any(|name| name.starts_with("none")));
    }
}
