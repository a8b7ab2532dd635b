//! What waits for names, and what has got them: between the collector and the thread.

use super::message::MAX_ADDRESSES;
use super::{Named, Sandbox};
use crate::stack::Nameless;
use crate::stack::wanted::Wanted;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is next to do.
pub(super) enum Next {
    /// Places in one source.
    Batch(Vec<Wanted>),
    /// Nothing came for a while.
    Idle,
    /// Nobody wants names any more.
    Closed,
}

#[derive(Debug, Default)]
struct State {
    wanted: VecDeque<Wanted>,
    named: Vec<Named>,
    /// Asked for and not taken.
    waiting: usize,
    closed: bool,
    /// What takes long is not to be waited for any more.
    hurried: bool,
    sandbox: Option<Sandbox>,
}

/// Bounded, and held by nobody for long.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most }
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ask(&self, wanted: Vec<Wanted>) {
        let mut state = self.lock();
        for wanted in wanted {
            state.waiting += 1;
            if state.waiting > self.most {
                let unknown = Some(Nameless::NotLookedUp);
                state.named.push(Named { frame: wanted.frame, functions: Vec::new(), unknown });
            } else {
                state.wanted.push_back(wanted);
            }
        }
        self.changed.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Named> {
        let mut state = self.lock();
        state.waiting -= state.named.len();
        std::mem::take(&mut state.named)
    }

    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    pub(super) fn hurry(&self) {
        self.lock().hurried = true;
        self.changed.notify_one();
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.lock().hurried
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn give(&self, named: impl Iterator<Item = Named>) {
        self.lock().named.extend(named);
    }

    pub(super) fn set_sandbox(&self, sandbox: Sandbox) {
        self.lock().sandbox = Some(sandbox);
    }

    pub(super) fn sandbox(&self) -> Option<Sandbox> {
        self.lock().sandbox.clone()
    }

    /// Waits for places, and takes the first and others of its source.
    pub(super) fn next(&self, idle: Duration) -> Next {
        let nothing = |state: &mut State| state.wanted.is_empty() && !state.closed;
        let (mut state, _) =
            self.changed.wait_timeout_while(self.lock(), idle, nothing).unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Next::Closed;
        }
        let Some(first) = state.wanted.front() else { return Next::Idle };
        let source = Arc::clone(&first.source);
        let (mut batch, mut rest) = (Vec::new(), VecDeque::new());
        for wanted in state.wanted.drain(..) {
            if batch.len() < MAX_ADDRESSES && Arc::ptr_eq(&wanted.source, &source) {
                batch.push(wanted);
            } else {
                rest.push_back(wanted);
            }
        }
        state.wanted = rest;
        Next::Batch(batch)
    }
}
