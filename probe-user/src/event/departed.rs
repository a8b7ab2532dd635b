//! Interfaces that have gone, in the order in which they went.

use super::InterfaceId;
use crate::clock::MonoNs;
use std::collections::VecDeque;

/// Those of which something may still be told. What is known of an interface is kept for a while
/// after it has gone, and not for ever: on a busy host thousands come and go each day.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    order: VecDeque<(InterfaceId, MonoNs)>,
}

impl Departed {
    /// One has gone at `at`.
    pub(crate) fn leave(&mut self, id: InterfaceId, at: MonoNs) {
        self.come(id);
        self.order.push_back((id, at));
    }

    /// One that may have gone is there.
    pub(crate) fn come(&mut self, id: InterfaceId) {
        self.order.retain(|(known, _)| *known != id);
    }

    /// Of more than `keep`, the one that went first; it is not remembered any more.
    pub(crate) fn beyond(&mut self, keep: usize) -> Option<InterfaceId> {
        if self.order.len() <= keep {
            return None;
        }
        self.order.pop_front().map(|(id, _)| id)
    }

    /// The one that went first, if that was before `before`; it is not remembered any more.
    pub(crate) fn older_than(&mut self, before: MonoNs) -> Option<InterfaceId> {
        self.order.pop_front_if(|(_, at)| *at < before).map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::{Departed, InterfaceId, MonoNs};

    #[test]
    fn the_first_that_went_is_forgotten_first_unless_it_is_back() {
        let id = |ifindex| InterfaceId { netns: 1, ifindex };
        let mut departed = Departed::default();
        (1..=4).for_each(|number| departed.leave(id(number), MonoNs(number.into())));
        departed.come(id(1));
        assert_eq!((departed.beyond(3), departed.beyond(2)), (None, Some(id(2))));
        assert_eq!((departed.older_than(MonoNs(3)), departed.older_than(MonoNs(4))), (None, Some(id(3))));
    }
}
