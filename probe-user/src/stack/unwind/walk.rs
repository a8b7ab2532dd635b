//! From frame to frame up a stack.

use super::memory::Memory;
use super::place::{Place, Places};
use super::registers::Registers;
use super::rule::{Said, Step, Stuck, step_by_frame_pointer};
use crate::stack::StackEnd;
use std::sync::Arc;

/// Most frames of a stack that are kept, the innermost.
const MOST_FRAMES: usize = 128;

impl Places<'_> {
    /// The places of all frames of a stack that are found, innermost first, and why there are no
    /// more. `chain`: as in `RawStack`.
    pub(super) fn walk(
        &mut self,
        mut registers: Registers,
        memory: &mut Memory<'_>,
        chain: &[u64],
    ) -> (Vec<Place>, StackEnd) {
        let chain = Chain { start: registers.fp(), addresses: chain };
        let mut places = Vec::new();
        let Some(mut place) = self.find(registers.ip) else {
            return (vec![Place::unmapped(registers.ip)], StackEnd::NoCaller);
        };
        loop {
            let said = self.said(&place);
            places.push(place.clone());
            let step = match (said.as_deref(), &place.image) {
                (Some(Said::Outermost), _) => Ok(Step::Outermost),
                (Some(Said::ChangesStack), _) => match step_by_frame_pointer(&registers, memory) {
                    Err(_) => return self.by_chain(places, chain.above(&registers)),
                    step => step,
                },
                (Some(Said::Rule(rule)), Some(image)) => {
                    let section = image.frames.as_ref().map_or(&[][..], |frames| frames.section());
                    rule.step(section, &registers, memory)
                }
                _ => step_by_frame_pointer(&registers, memory),
            };
            let (caller, exact) = match step {
                Ok(Step::Caller { registers, exact }) => (registers, exact),
                Ok(Step::Outermost) => return (places, StackEnd::Entry),
                Err(Stuck::NotCopied) => return (places, StackEnd::CopyTooShort),
                Err(Stuck::NoSense) => return (places, StackEnd::NoCaller),
            };
            if places.len() >= MOST_FRAMES {
                return (places, StackEnd::TooDeep);
            }
            // A call is looked up by its last byte: what is behind it may be another function.
            let Some(next) = self.find(caller.ip - u64::from(!exact)) else { return (places, StackEnd::NoCaller) };
            (place, registers) = (next, caller);
        }
    }

    /// What follows on another stack: Go's own functions, by frame pointers.
    fn by_chain(&mut self, mut places: Vec<Place>, callers: &[u64]) -> (Vec<Place>, StackEnd) {
        for address in callers {
            let Some(place) = address.checked_sub(1).and_then(|call| self.find(call)) else { break };
            let go = place.image.as_ref().is_some_and(|image| image.go.is_some());
            let Some(said) = self.said(&place).filter(|_| go) else { break };
            if places.len() >= MOST_FRAMES {
                return (places, StackEnd::TooDeep);
            }
            places.push(place);
            if *said == Said::Outermost {
                return (places, StackEnd::Entry);
            }
        }
        (places, StackEnd::NoCaller)
    }

    fn said(&mut self, place: &Place) -> Option<Arc<Said>> {
        self.modules.said(place.module?, place.image.as_ref()?, place.address)
    }
}

/// The addresses that the kernel found by frame pointers.
#[derive(Debug, Clone, Copy)]
struct Chain<'a> {
    /// The frame pointer that it began with.
    start: Option<u64>,
    addresses: &'a [u64],
}

impl<'a> Chain<'a> {
    /// Those above a frame.
    fn above(self, registers: &Registers) -> &'a [u64] {
        // A function that has not set up its frame is not in it.
        let last = match registers.fp() == self.start {
            true => Some(0),
            false => self.addresses.iter().position(|address| *address == registers.ip),
        };
        last.and_then(|last| self.addresses.get(last + 1..)).unwrap_or_default()
    }
}
