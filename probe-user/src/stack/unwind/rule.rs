//! How the registers of a caller are found: a row of unwind information, and what follows from it
//! for given registers and memory. Pure, and bounded: unwind information may be made to mislead.

use super::memory::{Memory, Unread};
use super::registers::{self, Registers};
use gimli::{
    CfaRule, Encoding, EndianSlice, Evaluation, EvaluationResult, EvaluationStorage, Format, LittleEndian, Location,
    Piece, Register, RegisterRule, Value,
};

/// Most operations of an expression. Those that compilers make have some ten; one could loop for
/// ever.
const MOST_OPERATIONS: u32 = 64;

/// Bytes of unwind information.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// A row of unwind information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// Where the frame ends, which is where the stack pointer of the caller is.
    pub(super) frame: CfaRule<usize>,
    /// Where registers were saved.
    pub(super) saved: Box<[(Register, RegisterRule<usize>)]>,
    /// The column of the return address.
    pub(super) returns: Register,
    /// The frame was made by a signal: its caller stands exactly where it was interrupted.
    pub(super) signal: bool,
    /// How its expressions are encoded.
    pub(super) encoding: Encoding,
}

/// What a module says of the frame at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// How its caller is found.
    Rule(Rule),
    /// Its thread begins there.
    Outermost,
    /// It changes to another stack, and its caller waits on the first: frame pointers lead there.
    ChangesStack,
}

/// What a step up the stack has found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and all but the last are callers")]
pub(super) enum Step {
    /// The caller. `exact`: it stands at its address, not behind a call.
    Caller {
        /// Its registers.
        registers: Registers,
        /// Whether a signal interrupted it there.
        exact: bool,
    },
    /// There is no caller: the thread began here.
    Outermost,
}

/// Why a step was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stuck {
    /// A word of the stack is needed that was not copied.
    NotCopied,
    /// What is said makes no sense, or needs what is not known.
    NoSense,
}

impl From<Unread> for Stuck {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::NotCopied => Self::NotCopied,
            Unread::Elsewhere => Self::NoSense,
        }
    }
}

impl Rule {
    /// Of a Go function with this many bytes below the return address, the upper eight of them
    /// the frame pointer of its caller.
    pub(super) fn of_go(size: u64) -> Option<Self> {
        let offset = i64::try_from(size.checked_add(8)?).ok()?;
        let returns = (registers::CODE, RegisterRule::Offset(-8));
        let kept = (registers::FRAME, RegisterRule::Offset(-16));
        Some(Self {
            frame: CfaRule::RegisterAndOffset { register: registers::STACK, offset },
            saved: if size < 8 { [returns].into() } else { [returns, kept].into() },
            returns: registers::CODE,
            signal: false,
            encoding: Encoding { address_size: 8, format: Format::Dwarf32, version: 4 },
        })
    }

    /// The caller of a frame, `section` being what the rule was read from.
    pub(super) fn step(&self, section: &[u8], registers: &Registers, memory: &mut Memory<'_>) -> Result<Step, Stuck> {
        let returns = self.saved.iter().find(|(register, _)| *register == self.returns);
        if let Some((_, RegisterRule::Undefined)) = returns {
            return Ok(Step::Outermost);
        }
        let mut evaluate = Evaluate { section, registers, memory, encoding: self.encoding };
        let frame = evaluate.frame(&self.frame)?;
        let mut caller = registers.of_caller(frame);
        for (register, rule) in self.saved.iter().filter(|(register, _)| *register != self.returns) {
            // A register that is never needed may well be unreadable.
            caller.set(*register, evaluate.register(*register, rule, frame).unwrap_or(None));
        }
        caller.ip = match returns {
            Some((register, rule)) => evaluate.register(*register, rule, frame)?,
            None => caller.link(),
        }
        .ok_or(Stuck::NoSense)?;
        if caller.ip == 0 {
            return Ok(Step::Outermost);
        }
        if !self.signal && !moves_up(registers, &caller) {
            return Err(Stuck::NoSense);
        }
        Ok(Step::Caller { registers: caller, exact: self.signal })
    }
}

/// The caller of a frame by the chain of frame pointers, for code without unwind information.
pub(super) fn step_by_frame_pointer(registers: &Registers, memory: &mut Memory<'_>) -> Result<Step, Stuck> {
    let frame = registers.fp().filter(|frame| frame % 8 == 0).ok_or(Stuck::NoSense)?;
    let ip = memory.word(frame.checked_add(8).ok_or(Stuck::NoSense)?)?;
    let mut caller = registers.of_caller(frame.checked_add(16).ok_or(Stuck::NoSense)?);
    caller.set_fp(memory.word(frame)?);
    caller.ip = ip;
    match ip {
        0 => Ok(Step::Outermost),
        _ if moves_up(registers, &caller) => Ok(Step::Caller { registers: caller, exact: false }),
        _ => Err(Stuck::NoSense),
    }
}

/// Whether the caller's frame lies above.
fn moves_up(registers: &Registers, caller: &Registers) -> bool {
    match (registers.sp(), caller.sp()) {
        (Some(below), Some(above)) if registers::CALL_PUSHES => below < above,
        (Some(below), Some(above)) => below < above || below == above && registers.ip != caller.ip,
        _ => false,
    }
}

/// What a row's rules are evaluated with.
struct Evaluate<'a, 'm, 'c> {
    section: &'a [u8],
    registers: &'a Registers,
    memory: &'m mut Memory<'c>,
    encoding: Encoding,
}

impl Evaluate<'_, '_, '_> {
    fn frame(&mut self, rule: &CfaRule<usize>) -> Result<u64, Stuck> {
        match rule {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.registers.get(*register).and_then(|value| value.checked_add_signed(*offset)).ok_or(Stuck::NoSense)
            }
            CfaRule::Expression(expression) => self.expression(expression.offset, expression.length, None),
        }
    }

    fn register(&mut self, register: Register, rule: &RegisterRule<usize>, frame: u64) -> Result<Option<u64>, Stuck> {
        let at = |offset: i64| frame.checked_add_signed(offset).ok_or(Stuck::NoSense);
        Ok(match rule {
            RegisterRule::SameValue => self.registers.get(register),
            // What lies below the stack pointer was given back: at the end of a function, whose
            // rows still tell where the register was saved.
            RegisterRule::Offset(offset)
                if self.registers.sp().is_some_and(|sp| at(*offset).is_ok_and(|at| at < sp)) =>
            {
                self.registers.get(register)
            }
            RegisterRule::Offset(offset) => Some(self.memory.word(at(*offset)?)?),
            RegisterRule::ValOffset(offset) => Some(at(*offset)?),
            RegisterRule::Register(other) => self.registers.get(*other),
            RegisterRule::Expression(place) => {
                let address = self.expression(place.offset, place.length, Some(frame))?;
                Some(self.memory.word(address)?)
            }
            RegisterRule::ValExpression(value) => Some(self.expression(value.offset, value.length, Some(frame))?),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        })
    }

    fn expression(&mut self, offset: usize, length: usize, initial: Option<u64>) -> Result<u64, Stuck> {
        let behind = offset.checked_add(length).ok_or(Stuck::NoSense)?;
        let code = self.section.get(offset..behind).ok_or(Stuck::NoSense)?;
        let mut evaluation = Evaluation::<_, Small>::new_in(Bytes::new(code, LittleEndian), self.encoding);
        evaluation.set_max_iterations(MOST_OPERATIONS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| Stuck::NoSense)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register).ok_or(Stuck::NoSense)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.memory.word(address)?))
                }
                _ => return Err(Stuck::NoSense),
            };
        }
        match evaluation.as_result() {
            [Piece { location: Location::Address { address }, .. }] => Ok(*address),
            _ => Err(Stuck::NoSense),
        }
    }
}

/// Room for an expression, none of it on the heap, so that none can take up memory.
struct Small;

impl<'a> EvaluationStorage<Bytes<'a>> for Small {
    type Stack = [Value; 16];
    type ExpressionStack = [(Bytes<'a>, Bytes<'a>); 1];
    type Result = [Piece<Bytes<'a>>; 1];
}

#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests {
    use super::*;
    use gimli::{UnwindExpression, X86_64};
    use proptest::prelude::*;

    const SP: u64 = 0x7000;
    const IP: u64 = 0x40_1000;

    fn rule(frame: CfaRule<usize>, saved: &[(Register, RegisterRule<usize>)]) -> Rule {
        let encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 1 };
        Rule { frame, saved: saved.into(), returns: X86_64::RA, signal: false, encoding }
    }

    const fn above(register: Register, offset: i64) -> CfaRule<usize> {
        CfaRule::RegisterAndOffset { register, offset }
    }

    const RETURNS: (Register, RegisterRule<usize>) = (X86_64::RA, RegisterRule::Offset(-8));

    /// The caller's instruction, stack and frame pointer.
    fn caller(rule: &Rule, section: &[u8], words: &[u64]) -> Result<Option<(u64, u64, u64)>, Stuck> {
        let copied: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut memory = Memory::new(SP, &copied, SP + 0x100);
        Ok(match rule.step(section, &Registers::new(IP, SP, SP + 8), &mut memory)? {
            Step::Caller { registers, .. } => Some((registers.ip, registers.sp().unwrap(), registers.fp().unwrap())),
            Step::Outermost => None,
        })
    }

    #[test]
    fn a_caller_is_where_the_frame_ends() {
        let saved = [RETURNS, (X86_64::RBP, RegisterRule::Offset(-16))];
        let words = [1, 2, 3, 4];
        assert_eq!(caller(&rule(above(X86_64::RSP, 24), &saved), &[], &words), Ok(Some((3, SP + 24, 2))));
        assert_eq!(caller(&rule(above(X86_64::RBP, 16), &saved), &[], &words), Ok(Some((3, SP + 24, 2))));
    }

    #[test]
    fn what_lies_below_the_stack_pointer_was_given_back() {
        let saved = [RETURNS, (X86_64::RBP, RegisterRule::Offset(-16))];
        assert_eq!(caller(&rule(above(X86_64::RSP, 8), &saved), &[], &[5]), Ok(Some((5, SP + 8, SP + 8))));
    }

    #[test]
    fn the_outermost_frame_has_no_return_address_or_none_but_zero() {
        let none = [(X86_64::RA, RegisterRule::Undefined)];
        assert_eq!(caller(&rule(above(X86_64::RSP, 8), &none), &[], &[1]), Ok(None));
        assert_eq!(caller(&rule(above(X86_64::RSP, 8), &[RETURNS]), &[], &[0]), Ok(None));
    }

    #[test]
    fn a_short_copy_is_told_from_nonsense() {
        let one_word = |offset| caller(&rule(above(X86_64::RSP, offset), &[RETURNS]), &[], &[1]);
        assert_eq!(one_word(24), Err(Stuck::NotCopied));
        assert_eq!(one_word(0x1000), Err(Stuck::NoSense), "beyond the stack");
        assert_eq!(one_word(0), Err(Stuck::NoSense), "the stack pointer must move");
        assert_eq!(one_word(-16), Err(Stuck::NoSense));
        assert_eq!(caller(&rule(above(X86_64::RBX, 8), &[RETURNS]), &[], &[1]), Err(Stuck::NoSense), "unknown");
    }

    #[test]
    fn an_expression_reads_registers_and_memory() {
        // DW_OP_breg7 (rsp) 0, DW_OP_deref, DW_OP_plus_uconst 16: as a signal's frame has it.
        let section = [0x77, 0, 0x06, 0x23, 16];
        let frame = CfaRule::Expression(UnwindExpression { offset: 0, length: 5 });
        assert_eq!(caller(&rule(frame, &[RETURNS]), &section, &[SP, 7]), Ok(Some((7, SP + 16, SP + 8))));
    }

    #[test]
    fn an_expression_that_loops_ends() {
        // DW_OP_lit1, DW_OP_skip -4: it would go on for ever, and take up memory.
        let section = [0x31, 0x2f, 0xfc, 0xff];
        let frame = CfaRule::Expression(UnwindExpression { offset: 0, length: 4 });
        assert_eq!(caller(&rule(frame, &[RETURNS]), &section, &[1]), Err(Stuck::NoSense));
    }

    proptest! {
        #[test]
        fn any_expression_comes_to_an_end(section in prop::collection::vec(any::<u8>(), 0..40), offset: usize, length: usize) {
            for expression in [
                UnwindExpression { offset: 0, length: section.len() },
                UnwindExpression { offset, length },
            ] {
                let returns = (X86_64::RA, RegisterRule::ValExpression(expression));
                let _ = caller(&rule(CfaRule::Expression(expression), &[RETURNS]), &section, &[SP, SP + 8, 3]);
                let _ = caller(&rule(above(X86_64::RSP, 8), &[returns]), &section, &[SP, SP + 8, 3]);
            }
        }

        #[test]
        fn any_offsets_are_survived(offset: i64, saved: i64, sp: u64, bp: u64, copied in prop::collection::vec(any::<u8>(), 0..64)) {
            let rule = rule(above(X86_64::RSP, offset), &[(X86_64::RA, RegisterRule::Offset(saved))]);
            let registers = Registers::new(IP, sp, bp);
            let mut memory = Memory::new(sp, &copied, sp.saturating_add(64));
            let _ = rule.step(&[], &registers, &mut memory);
            let _ = step_by_frame_pointer(&registers, &mut memory);
            prop_assert!(memory.needed() <= 64);
        }
    }
}
