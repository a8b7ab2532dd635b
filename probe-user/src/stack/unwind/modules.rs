//! What was read of mapped files, for as long as it is used.

use super::golang::GoFrame;
use super::image::Image;
use super::numbers::ModuleKey;
use super::recent::Recent;
use super::registers;
use super::rule::{Rule, Said};
use crate::stack::Nameless;
use crate::stack::wanted::Source;
use foldhash::fast::RandomState;
use gimli::UnwindContext;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

/// Most files that are kept at once.
const MOST_FILES: usize = 512;
/// Most bytes that are kept of them; one may be larger, and is then the only one.
const MOST_BYTES: usize = 64 << 20;
/// Most rules that are kept: it is the code that runs and waits that has stacks.
const MOST_RULES: usize = 1 << 14;

/// What is known of the file behind code.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// What it holds, or why that is not known.
    pub(super) image: Result<Arc<Image>, Nameless>,
    /// What its names are looked up in, while anybody does.
    pub(super) source: Weak<Source>,
}

/// What was read of files, and which rules were found in them.
pub(super) struct Modules {
    files: Recent<ModuleKey, Known>,
    bytes: usize,
    rules: HashMap<(ModuleKey, u64), Option<Arc<Said>>, RandomState>,
    context: UnwindContext<usize>,
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Modules").field("bytes", &self.bytes).field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Modules {
    pub(super) fn new() -> Self {
        Self { files: Recent::new(MOST_FILES), bytes: 0, rules: HashMap::default(), context: UnwindContext::new() }
    }

    /// What is kept of a module.
    pub(super) fn get(&mut self, key: ModuleKey) -> Option<&mut Known> {
        self.files.get(&key)
    }

    /// Keeps what was read of a module; for it, what was not used for longest goes.
    pub(super) fn keep(&mut self, key: ModuleKey, known: Known) {
        let size = known.size();
        while self.bytes + size > MOST_BYTES || self.files.is_full() {
            let Some(gone) = self.files.drop_oldest() else { break };
            self.bytes -= gone.size();
        }
        self.bytes += size;
        if let Some(before) = self.files.insert(key, known) {
            self.bytes -= before.size();
        }
    }

    /// What a module says of the frame at an address.
    pub(super) fn said(&mut self, key: ModuleKey, image: &Image, address: u64) -> Option<Arc<Said>> {
        if let Some(said) = self.rules.get(&(key, address)) {
            return said.clone();
        }
        let said = self.find(image, address).map(Arc::new);
        if self.rules.len() >= MOST_RULES {
            self.rules.clear();
        }
        self.rules.insert((key, address), said.clone());
        said
    }

    fn find(&mut self, image: &Image, address: u64) -> Option<Said> {
        if let Some(rule) = image.frames.as_ref().and_then(|frames| frames.rule(address, &mut self.context)) {
            return Some(Said::Rule(rule));
        }
        // Elsewhere the return address lies in a register that is not known.
        let go = image.go.as_ref().filter(|_| registers::CALL_PUSHES)?;
        match go.frame(address)? {
            GoFrame::Outermost => Some(Said::Outermost),
            GoFrame::Size(size) => Rule::of_go(size).map(Said::Rule),
            GoFrame::Changes => Some(Said::ChangesStack),
        }
    }
}

impl Known {
    fn size(&self) -> usize {
        self.image.as_ref().map_or(0, |image| image.size())
    }
}
