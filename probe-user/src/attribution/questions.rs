//! What a thread had asked before the first of its marks that are kept: a wait that has not ended may
//! still be for that, though all that came before the wait is forgotten.

use super::thread::Call;

/// Most sockets whose last call is kept; the oldest go.
const MAX_SOCKETS: usize = 16;

/// The last call, and of other sockets that on which a question is open; the latest last.
#[derive(Debug, Default)]
pub(super) struct Questions {
    calls: Vec<Call>,
}

impl Questions {
    pub(super) const NONE: Self = Self { calls: Vec::new() };

    /// Takes in calls that are forgotten, in the order of their time.
    pub(super) fn take(&mut self, calls: impl Iterator<Item = Call>) {
        for call in calls {
            self.calls.retain(|before| before.socket != call.socket && !before.received);
            self.calls.push(call);
        }
        let surplus = self.calls.len().saturating_sub(MAX_SOCKETS);
        self.calls.drain(..surplus);
    }

    /// The calls, the latest first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, MAX_SOCKETS, Questions};
    use crate::clock::MonoNs;

    fn call(at: u64, socket: u64, received: bool) -> Call {
        Call { first: MonoNs(at), last: MonoNs(at), socket, received }
    }

    fn kept(questions: &Questions) -> Vec<(u64, bool)> {
        questions.latest_first().map(|call| (call.socket, call.received)).collect()
    }

    #[test]
    fn open_questions_are_kept_and_answered_ones_only_as_the_last_call() {
        let mut questions = Questions::NONE;
        questions.take([call(1, 1, false), call(2, 2, false), call(3, 2, true)].into_iter());
        assert_eq!(kept(&questions), [(2, true), (1, false)]);
        questions.take([call(4, 3, false)].into_iter());
        assert_eq!(kept(&questions), [(3, false), (1, false)]);
    }

    #[test]
    fn sockets_on_which_no_answer_ever_comes_do_not_fill_it() {
        let mut questions = Questions::NONE;
        questions.take((0..100).map(|socket| call(socket, socket, false)));
        assert_eq!((kept(&questions).len(), kept(&questions)[0]), (MAX_SOCKETS, (99, false)));
    }
}
