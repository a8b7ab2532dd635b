//! The copy of a thread's stack. Pure.

/// Memory from a stack pointer upwards, as far as it was copied.
#[derive(Debug)]
pub(super) struct Memory<'a> {
    start: u64,
    copied: &'a [u8],
    /// Where the stack itself ends; beyond it there is nothing to copy.
    end: u64,
    /// End of the highest word that was asked for and is part of the stack.
    needed: u64,
}

/// Why a word could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is on the stack, but was not copied.
    NotCopied,
    /// It is not on the stack.
    Elsewhere,
}

impl<'a> Memory<'a> {
    /// `end`: where the stack ends; what was copied is part of it in any case.
    pub(super) fn new(start: u64, copied: &'a [u8], end: u64) -> Self {
        Self { start, copied, end, needed: start }
    }

    /// The word at an address.
    pub(super) fn word(&mut self, address: u64) -> Result<u64, Unread> {
        let offset = address.checked_sub(self.start).ok_or(Unread::Elsewhere)?;
        let behind = address.checked_add(8).ok_or(Unread::Elsewhere)?;
        let from = usize::try_from(offset).map_err(|_| Unread::Elsewhere)?;
        match self.copied.get(from..).and_then(<[u8]>::first_chunk) {
            Some(word) => {
                self.needed = self.needed.max(behind);
                Ok(u64::from_ne_bytes(*word))
            }
            None if behind <= self.end => {
                self.needed = self.needed.max(behind);
                Err(Unread::NotCopied)
            }
            None => Err(Unread::Elsewhere),
        }
    }

    /// How many bytes of the stack all that was asked for takes.
    pub(super) const fn needed(&self) -> u64 {
        self.needed - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_copied_is_told_from_what_is_not_there() {
        let copied: Vec<u8> = (0..20).collect();
        let mut memory = Memory::new(0x1000, &copied, 0x1040);
        assert_eq!(memory.word(0x1000), Ok(0x0706_0504_0302_0100));
        assert_eq!(memory.word(0x100c), Ok(0x1312_1110_0f0e_0d0c));
        assert_eq!(memory.needed(), 20);
        assert_eq!(memory.word(0x100d), Err(Unread::NotCopied), "half of it was copied");
        assert_eq!(memory.word(0x1038), Err(Unread::NotCopied));
        assert_eq!(memory.needed(), 0x40);
        assert_eq!(memory.word(0x1039), Err(Unread::Elsewhere));
        assert_eq!(memory.word(0xfff), Err(Unread::Elsewhere));
        assert_eq!(memory.word(u64::MAX), Err(Unread::Elsewhere));
        assert_eq!(memory.needed(), 0x40);
    }
}
