//! Registers of a frame, as far as they are known, by the numbers that DWARF gives them. Pure.

use gimli::Register;

/// The numbers are below this on both architectures.
const COUNT: usize = 33;

#[cfg(target_arch = "x86_64")]
mod arch {
    use gimli::{Register, X86_64};
    pub(in super::super) const STACK: Register = X86_64::RSP;
    pub(in super::super) const FRAME: Register = X86_64::RBP;
    /// What a call leaves as it was.
    pub(in super::super) const KEPT: &[Register] =
        &[X86_64::RBX, X86_64::RBP, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15];
    /// The instruction pointer, by the number of the column that says where its caller's is.
    pub(in super::super) const CODE: Register = X86_64::RA;
    /// A call leaves the return address on the stack.
    pub(in super::super) const LINK: Option<Register> = None;
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use gimli::{AArch64, Register};
    pub(in super::super) const STACK: Register = AArch64::SP;
    pub(in super::super) const FRAME: Register = AArch64::X29;
    /// What a call leaves as it was; the link register as long as its function makes no call.
    pub(in super::super) const KEPT: &[Register] = &[
        AArch64::X19,
        AArch64::X20,
        AArch64::X21,
        AArch64::X22,
        AArch64::X23,
        AArch64::X24,
        AArch64::X25,
        AArch64::X26,
        AArch64::X27,
        AArch64::X28,
        AArch64::X29,
        AArch64::X30,
    ];
    /// The instruction pointer.
    pub(in super::super) const CODE: Register = Register(32);
    /// A call leaves the return address in a register.
    pub(in super::super) const LINK: Option<Register> = Some(AArch64::X30);
}

pub(super) use arch::{CODE, FRAME, STACK};

/// Whether a call moves the stack pointer, so that no two frames begin at the same place.
pub(super) const CALL_PUSHES: bool = arch::LINK.is_none();

/// Registers of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registers {
    /// Where its code is.
    pub(super) ip: u64,
    values: [u64; COUNT],
    /// A bit for each that is known.
    known: u64,
}

impl Registers {
    /// Those that are known when a stack is taken.
    pub(super) fn new(ip: u64, sp: u64, bp: u64) -> Self {
        let mut new = Self { ip, values: [0; COUNT], known: 0 };
        new.set(STACK, Some(sp));
        new.set(FRAME, Some(bp));
        new
    }

    /// Those of the caller before any rule is applied: what every call keeps, and its stack pointer.
    pub(super) fn of_caller(&self, sp: u64) -> Self {
        let mut caller = Self { ip: 0, values: [0; COUNT], known: 0 };
        arch::KEPT.iter().for_each(|&register| caller.set(register, self.get(register)));
        caller.set(STACK, Some(sp));
        caller
    }

    /// A register's value, if it is known.
    pub(super) fn get(&self, register: Register) -> Option<u64> {
        match register {
            CODE => Some(self.ip),
            Register(number) => {
                self.values.get(usize::from(number)).copied().filter(|_| self.known & (1 << number) != 0)
            }
        }
    }

    /// Sets a register; one that is not kept here is passed over.
    pub(super) fn set(&mut self, register: Register, value: Option<u64>) {
        let Some(slot) = self.values.get_mut(usize::from(register.0)) else { return };
        let bit = 1 << register.0;
        self.known = if value.is_some() { self.known | bit } else { self.known & !bit };
        *slot = value.unwrap_or_default();
    }

    /// Where a call has left its return address, if it is in a register and known.
    pub(super) fn link(&self) -> Option<u64> {
        arch::LINK.and_then(|register| self.get(register))
    }

    /// The stack pointer.
    pub(super) fn sp(&self) -> Option<u64> {
        self.get(STACK)
    }

    /// The frame pointer, or what is in its register.
    pub(super) fn fp(&self) -> Option<u64> {
        self.get(FRAME)
    }

    /// Sets the frame pointer.
    pub(super) fn set_fp(&mut self, value: u64) {
        self.set(FRAME, Some(value));
    }
}
