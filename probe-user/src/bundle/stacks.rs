//! Stacks of threads, counted: what a recording has of them, in the text that flame graph tools read.

use crate::clock::MonoNs;
use crate::event::{Event, Fact, TaskId};
use crate::stack::{StackTable, Taken, TakenFact};
use std::collections::{BTreeMap, HashMap};

/// Most different stacks; what comes later is counted for its thread only.
const MOST: usize = 1 << 16;
/// Most characters of a frame.
const LONGEST: usize = 256;

/// A stack that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    task: TaskId,
    waits: bool,
    user: Option<u32>,
    kernel: Vec<u64>,
}

/// Counts stacks.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    table: StackTable,
    symbols: HashMap<u64, String>,
    threads: HashMap<TaskId, String>,
    taken: HashMap<Key, u64>,
}

impl Stacks {
    /// Takes an event in; facts are what tells of stacks.
    pub(super) fn push(&mut self, event: &Event) {
        let crate::event::Body::Fact(fact) = &event.body else { return };
        match &**fact {
            Fact::Symbol { address, name } => drop(self.symbols.insert(*address, name.clone())),
            Fact::Task(task) => drop(self.threads.insert(task.id, task.comm.clone())),
            Fact::Taken(taken) => self.count(event.at, taken),
            fact => self.table.learn(fact),
        }
    }

    fn count(&mut self, at: MonoNs, taken: &TakenFact) {
        let (waits, time) = match taken.why {
            Taken::Sample { period } => (false, period),
            Taken::Wait { since } => (true, at.since(since)),
        };
        let mut key = Key { task: taken.task, waits, user: taken.user, kernel: taken.kernel.clone() };
        if self.taken.len() >= MOST && !self.taken.contains_key(&key) {
            (key.user, key.kernel) = (None, Vec::new());
        }
        let sum = self.taken.entry(key).or_default();
        *sum = sum.saturating_add(time.0);
    }

    /// A line for each stack, outermost frame first, then its nanoseconds; `None` if none was taken.
    pub(super) fn folded(&self) -> Option<String> {
        let mut lines = BTreeMap::<String, u64>::new();
        for (key, time) in &self.taken {
            let sum = lines.entry(self.line(key)).or_default();
            *sum = sum.saturating_add(*time);
        }
        let text = lines.iter().fold(String::new(), |all, (line, time)| format!("{all}{line} {time}\n"));
        (!lines.is_empty()).then_some(text)
    }

    fn line(&self, key: &Key) -> String {
        let comm = self.threads.get(&key.task).map_or("?", String::as_str);
        let first = [if key.waits { "off-cpu" } else { "on-cpu" }.to_owned(), format!("{comm} {}", key.task.tid)];
        let user = key.user.into_iter().flat_map(|stack| self.table.frames(stack).rev());
        let user = user.flat_map(|(frame, module)| {
            let place = || match module {
                Some(module) => format!("{}+{:#x}", module.name, frame.address),
                None => format!("{:#x}", frame.address),
            };
            let names: Vec<_> = frame.functions.iter().rev().map(|function| function.name.clone()).collect();
            if names.is_empty() { vec![place()] } else { names }
        });
        let kernel = key.kernel.iter().rev().map(|address| match self.symbols.get(address) {
            Some(name) => format!("{name}_[k]"),
            None => format!("{address:#x}_[k]"),
        });
        let frames: Vec<_> = first.into_iter().chain(user).chain(kernel).map(|frame| plain(&frame)).collect();
        frames.join(";")
    }
}

/// `;` and line breaks would part frames and stacks.
fn plain(frame: &str) -> String {
    let safe = |c: char| if c == ';' || c.is_control() { '_' } else { c };
    frame.chars().take(LONGEST).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::DurNs;
    use crate::event::{Body, TaskFact};
    use crate::event::{decode, fact_record};
    use crate::stack::{FrameFact, Function, StackEnd, StackFact};

    fn event(at: u64, fact: &Fact) -> Event {
        decode(&fact_record(MonoNs(at), fact).unwrap()).unwrap()
    }

    #[test]
    fn stacks_are_counted_in_nanoseconds_by_thread() {
        let id = TaskId { tgid: 1, tid: 2 };
        let name = |name: &str| Function { name: name.to_owned(), file: String::new(), line: 0 };
        let frame = FrameFact {
            id: 7,
            module: None,
            address: 16,
            functions: vec![name("in;ner"), name("outer")],
            unknown: None,
        };
        let task = TaskFact {
            id,
            start_time_ns: 0,
            comm: "wor;ker\n".to_owned(),
            cgroup: String::new(),
            state: 'S',
            wchan: None,
        };
        let taken = |why, kernel| Fact::Taken(TakenFact { task: id, why, user: Some(3), kernel });
        let sample = Taken::Sample { period: DurNs(10) };
        let facts = [
            Fact::Task(task),
            Fact::Symbol { address: 99, name: "do_read".to_owned() },
            Fact::Frame(frame),
            Fact::Stack(StackFact { id: 3, frames: vec![7], end: StackEnd::Entry }),
            taken(sample, vec![99]),
            taken(sample, vec![99]),
            taken(Taken::Wait { since: MonoNs(400) }, Vec::new()),
        ];
        let mut stacks = Stacks::default();
        assert_eq!(stacks.folded(), None);
        facts.iter().for_each(|fact| stacks.push(&event(1_000, fact)));
        assert!(matches!(event(1, &facts[0]).body, Body::Fact(_)));
        let expected = "off-cpu;wor_ker_ 2;outer;in_ner 600\non-cpu;wor_ker_ 2;outer;in_ner;do_read_[k] 20\n";
        assert_eq!(stacks.folded().as_deref(), Some(expected));
    }
}
