//! Where the watched threads spent their time, checks or no checks: on a CPU by samples, off it by
//! every wait.
//!
//! Stacks are counted by number while the stream lasts and turned into towers at its end, because
//! their frames may get names late. Straight from counts to towers, without text in between.

use super::Empty;
use super::graph::{Graph, Share, Width};
use super::tower::{self, Kind, Level, Levels, Tower};
use crate::attribution::counted;
use crate::attribution::{Activity, Doing};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, TaskId};
use crate::pipeline::Output;
use crate::sink::Names;
use crate::stack::{StackTable, Taken, TakenFact};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::rc::Rc;

/// Most different stacks counted; time of what comes later counts for its thread alone.
const MAX_STACKS: usize = 1 << 17;
/// Most waits and most stacks of waits that are kept to be matched with each other.
const MAX_WAITS: usize = 1 << 20;

/// A wait: which thread, and when it left its CPU.
type WaitId = (TaskId, MonoNs);

/// Adds up the time of watched threads.
#[derive(Debug, Default)]
pub struct ThreadTimes {
    names: Names,
    stacks: StackTable,
    /// Names of threads, as activities or samples came.
    comms: HashMap<TaskId, Rc<str>, RandomState>,
    samples: HashMap<Sampled, DurNs, RandomState>,
    sampled: u64,
    waits: HashMap<Waited, DurNs>,
    wait_count: u64,
    /// Long enough ago to have a stack of their own, perhaps.
    waits_by_id: HashMap<WaitId, Vec<(Waited, DurNs)>>,
    user_stacks: HashMap<WaitId, u32>,
    lost_events: u64,
    stacks_left_out: u64,
}

/// What samples are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sampled {
    comm: Rc<str>,
    user: Option<u32>,
    kernel: Box<[u64]>,
}

/// What waits are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waited {
    comm: Rc<str>,
    user: Option<u32>,
    /// Kernel functions, outermost first.
    frames: Vec<String>,
    /// What ended it, or who had the CPU meanwhile.
    ended: Option<String>,
    ready: bool,
}

impl ThreadTimes {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one output of a pipeline that [tells
    /// activities](crate::pipeline::Collector::telling_activities) in.
    pub fn push(&mut self, output: &Output) {
        match output {
            Output::Activity(activity) => self.activity(activity),
            Output::Loss(report) => self.lost_events = report.lost.saturating_add(report.unreadable),
            Output::Fact(Fact::Taken(taken)) => self.taken(taken),
            Output::Fact(Fact::StackCounts(counts)) => self.stacks_left_out = counts.left_out(),
            Output::Fact(Fact::Task(task)) => drop(self.comm(task.id, &task.comm)),
            Output::Fact(fact) => {
                self.stacks.learn(fact);
                if Names::learns_from(fact) {
                    self.names.learn(fact);
                }
            }
            _ => {}
        }
    }

    fn comm(&mut self, task: TaskId, comm: &str) -> Rc<str> {
        let known = self.comms.entry(task).or_insert_with(|| comm.into());
        if !comm.is_empty() && &**known != comm {
            *known = comm.into();
        }
        Rc::clone(known)
    }

    fn taken(&mut self, taken: &TakenFact) {
        match (taken.why, taken.user) {
            (Taken::Sample { period }, user) => {
                let comm = self.comm(taken.task, "");
                let mut key = Sampled { comm, user, kernel: taken.kernel.as_slice().into() };
                if self.samples.len() >= MAX_STACKS && !self.samples.contains_key(&key) {
                    (key.user, key.kernel) = (None, Box::default());
                }
                let sum = self.samples.entry(key).or_default();
                *sum = sum.plus(period);
                self.sampled += 1;
            }
            (Taken::Wait { since }, Some(user)) if self.user_stacks.len() < MAX_WAITS => {
                self.user_stacks.insert((taken.task, since), user);
            }
            (Taken::Wait { .. }, _) => {}
        }
    }

    fn activity(&mut self, activity: &Activity) {
        let comm = self.comm(activity.task, &activity.comm);
        let time = activity.time();
        let waited = |frames, ended, ready| Waited { comm, user: None, frames, ended, ready };
        match &activity.doing {
            Doing::Asleep { since, frames, waker, .. } => {
                let waited = waited(frames.clone(), waker.clone(), false);
                self.wait_count += 1;
                let id = (activity.task, *since);
                if self.waits_by_id.len() < MAX_WAITS {
                    self.waits_by_id.entry(id).or_default().push((waited, time));
                } else {
                    add(&mut self.waits, waited, time);
                }
            }
            Doing::Runnable { instead } => add(&mut self.waits, waited(Vec::new(), instead.clone(), true), time),
            Doing::OnCpu { .. } | Doing::Stopped | Doing::Unknown(_) => {}
        }
    }

    /// Every wait, with the stack of its program where one was taken, whichever was told first.
    fn all_waits(&self) -> HashMap<Waited, DurNs> {
        let mut all = self.waits.clone();
        for (id, waits) in &self.waits_by_id {
            let user = self.user_stacks.get(id).copied();
            waits.iter().for_each(|(waited, time)| add(&mut all, Waited { user, ..waited.clone() }, *time));
        }
        all
    }

    /// What the threads did on their CPUs.
    ///
    /// # Errors
    /// When no sample was taken.
    pub fn cpu(&self) -> Result<Graph, Empty> {
        if self.sampled == 0 {
            return Err(Empty::NoSample);
        }
        let mut levels = Levels::default();
        let shares = self.samples.iter();
        let shares = shares
            .map(|(sampled, time)| Share { tower: self.sampled_tower(sampled, &mut levels), width: Width::Of(*time) })
            .collect::<Vec<_>>();
        let title =
            format!("whylag: watched threads on a CPU, {} samples; the full width is {}", self.sampled, whole(&shares));
        let note = "from below: thread, its program, the kernel; a sample stands for the time until the next";
        Ok(self.graph("CPU time", title, note, shares))
    }

    /// What they waited for.
    ///
    /// # Errors
    /// When no thread was seen to wait.
    pub fn offcpu(&self) -> Result<Graph, Empty> {
        let waits = self.all_waits();
        if waits.is_empty() {
            return Err(Empty::NoWait);
        }
        let mut levels = Levels::default();
        let shares = waits.iter();
        let shares = shares
            .map(|(waited, time)| Share { tower: self.waited_tower(waited, &mut levels), width: Width::Of(*time) })
            .collect::<Vec<_>>();
        let title = format!(
            "whylag: watched threads off their CPU, {} waits; the full width is {}",
            self.wait_count,
            whole(&shares)
        );
        let note = "from below: thread, its program, the kernel, who ended the wait; idle threads count too";
        Ok(self.graph("Time off CPU", title, note, shares))
    }

    fn graph(&self, measure: &'static str, title: String, note: &str, shares: Vec<Share>) -> Graph {
        let mut graph = Graph::new(measure, title, note.to_owned(), shares);
        if self.lost_events > 0 {
            graph.note(&format!("incomplete: {} lost", counted(self.lost_events, "event")));
        }
        if self.stacks_left_out > 0 {
            graph.note(&format!("{} left out", counted(self.stacks_left_out, "stack")));
        }
        graph
    }

    fn sampled_tower(&self, sampled: &Sampled, levels: &mut Levels) -> Tower {
        let mut tower = self.thread_tower(&sampled.comm, sampled.user, levels);
        let kernel = sampled.kernel.iter().rev();
        tower.extend(kernel.map(|address| levels.one(Level::new(Kind::Kernel, &self.names.symbol(*address)))));
        tower
    }

    fn waited_tower(&self, waited: &Waited, levels: &mut Levels) -> Tower {
        let mut tower = self.thread_tower(&waited.comm, waited.user, levels);
        let kernel = waited.frames.iter().map(|function| Level::new(Kind::Kernel, function));
        let ready = waited.ready.then(|| Level::new(Kind::Ready, "waits for a CPU"));
        let kind = if waited.ready { Kind::Instead } else { Kind::Waker };
        let ended = waited.ended.as_deref().map(|name| Level::new(kind, tower::named(name)));
        tower.extend(kernel.chain(ready).chain(ended).map(|level| levels.one(level)));
        tower
    }

    fn thread_tower(&self, comm: &str, user: Option<u32>, levels: &mut Levels) -> Tower {
        let depth = user.map_or(0, |stack| self.stacks.frame_numbers(stack).len());
        let mut tower = Tower::with_capacity(depth + 8);
        tower.push(levels.one(Level::new(Kind::Thread, tower::named(comm))));
        if let Some(stack) = user {
            levels.put_stack(&mut tower, &self.stacks, stack);
        }
        tower
    }
}

/// Of very many different waits, the time still counts for its thread.
fn add(waits: &mut HashMap<Waited, DurNs>, mut waited: Waited, time: DurNs) {
    if waits.len() >= MAX_STACKS && !waits.contains_key(&waited) {
        (waited.user, waited.frames, waited.ended) = (None, Vec::new(), None);
    }
    let sum = waits.entry(waited).or_default();
    *sum = sum.plus(time);
}

fn whole(shares: &[Share]) -> DurNs {
    shares.iter().fold(DurNs::ZERO, |sum, share| sum.plus(share.width.now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::story::{FUTEX, HOG, MS, SERVER, Story, WORKER, at};
    use crate::event::TaskFact;
    use crate::stack::{FrameFact, Function, ModuleFact, Nameless, StackEnd, StackFact};

    fn function(name: &str, line: u32) -> Function {
        Function { name: name.to_owned(), file: "/build/app/src/serve.rs".to_owned(), line }
    }

    fn frame(id: u32, functions: Vec<Function>) -> Fact {
        let unknown = functions.is_empty().then_some(Nameless::NoSymbol);
        Fact::Frame(FrameFact { id, module: Some(1), address: 0x1040, functions, unknown })
    }

    /// Stack 1 stands in `main`, `serve` and `lock` inlined in it; stack 2 in a nameless function.
    fn stacks() -> Vec<Fact> {
        vec![
            Fact::Module(ModuleFact { id: 1, name: "app".to_owned(), build_id: String::new() }),
            frame(1, vec![function("lock", 7), function("serve", 20)]),
            frame(2, vec![function("main", 3)]),
            frame(3, vec![]),
            frame(4, vec![function("lock", 7), function("serve", 31)]),
            Fact::Stack(StackFact { id: 1, frames: vec![1, 2], end: StackEnd::Entry }),
            Fact::Stack(StackFact { id: 2, frames: vec![3, 2], end: StackEnd::Entry }),
            Fact::Stack(StackFact { id: 3, frames: vec![4, 2], end: StackEnd::Entry }),
        ]
    }

    fn taken(why: Taken, user: u32, kernel: Vec<u64>) -> Fact {
        Fact::Taken(TakenFact { task: SERVER.id(), why, user: Some(user), kernel })
    }

    fn times(facts: Vec<Fact>) -> ThreadTimes {
        let mut times = ThreadTimes::new();
        let name = TaskFact {
            id: SERVER.id(),
            start_time_ns: 0,
            comm: "server".to_owned(),
            cgroup: String::new(),
            state: 'R',
            wchan: None,
        };
        let facts = std::iter::once(Fact::Task(name)).chain(facts);
        facts.for_each(|fact| times.push(&Output::Fact(fact)));
        times
    }

    fn sample(user: u32, kernel: Vec<u64>) -> Fact {
        taken(Taken::Sample { period: DurNs::from_millis(10) }, user, kernel)
    }

    #[test]
    fn samples_stand_on_their_thread_with_the_kernel_above_the_program() {
        let mut facts = vec![sample(1, vec![]), sample(1, vec![]), sample(2, vec![77])];
        facts.extend(stacks());
        facts.push(Fact::Symbol { address: 77, name: "tcp_sendmsg".to_owned() });
        let folded = times(facts).cpu().unwrap().folded();
        let expected = "thread server;main;app+0x1040 (no symbol);tcp_sendmsg_[k] 10000000\n\
                        thread server;main;serve;lock 20000000\n";
        assert_eq!(folded, expected, "names came after the samples");
    }

    #[test]
    fn lines_of_one_function_are_one_block_that_tells_them() {
        let mut facts = stacks();
        facts.extend([sample(1, vec![]), sample(1, vec![]), sample(1, vec![]), sample(3, vec![])]);
        let graph = times(facts).cpu().unwrap();
        assert_eq!(graph.folded(), "thread server;main;serve;lock 40000000\n");
        let svg = graph.svg().unwrap();
        let told = "<title>serve (40.0 ms, 100.00%; at src/serve.rs:20 75%, src/serve.rs:31 25%)</title>";
        assert!(svg.contains(told), "{svg}");
        assert_eq!(svg.matches("<title>serve (").count(), 1);
    }

    #[test]
    fn a_wait_has_its_program_stack_whichever_came_first_and_its_waker() {
        let mut story = Story::new();
        story.runs(0, SERVER).sleeps(2 * MS, SERVER, 1, FUTEX);
        story.runs(500, WORKER).wakes(5 * MS, WORKER, SERVER).runs_after(6 * MS, SERVER, HOG);
        let activities = story.tell().evidence.activities(None);
        let folded = |late: bool| {
            let mut facts = stacks();
            let wait = taken(Taken::Wait { since: at(2 * MS) }, 1, vec![]);
            if !late {
                facts.push(wait.clone());
            }
            let mut times = times(facts);
            activities.iter().for_each(|activity| times.push(&Output::Activity(activity.clone())));
            times.push(&Output::Fact(wait));
            times.offcpu().unwrap().folded()
        };
        let expected = "thread server;main;serve;lock;do_futex_[k];futex_wait_[k];__futex_wait_[k];futex_do_wait_[k];\
                        waker worker 3000000\nthread server;waits for a CPU;instead hog 1000000\n";
        assert_eq!((folded(false), folded(true)), (expected.to_owned(), expected.to_owned()));
    }

    #[test]
    fn nothing_to_draw_says_how_to_get_it() {
        assert!(times(stacks()).cpu().unwrap_err().to_string().contains("--stacks on"));
        assert!(times(stacks()).offcpu().is_err());
    }

    #[test]
    fn beyond_very_many_stacks_time_counts_for_its_thread() {
        let many = (0..MAX_STACKS as u64 + 10).map(|kernel| sample(1, vec![kernel + 1]));
        let mut facts = stacks();
        facts.extend(many);
        let times = times(facts);
        assert_eq!(times.samples.len(), MAX_STACKS + 1);
        let whole: u64 = times.samples.values().map(|time| time.0).sum();
        assert_eq!(whole, (MAX_STACKS as u64 + 10) * 10_000_000);
    }
}
