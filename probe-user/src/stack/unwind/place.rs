//! From an address in a process to a place in a module: what its code was mapped from, and where
//! in it that is.

use super::image::Image;
use super::maps::{Mapped, Mapping};
use super::modules::{Known, Modules};
use super::numbers::ModuleKey;
use super::process::{Process, vdso};
use crate::stack::Nameless;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Where a frame is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// What its code was mapped from; `None` where nothing is mapped.
    pub(super) module: Option<ModuleKey>,
    /// As in `FrameFact`.
    pub(super) address: u64,
    /// Why it has no name.
    pub(super) unknown: Nameless,
    /// The mapping that it is in.
    pub(super) range: Range<u64>,
    /// Name of its module.
    pub(super) name: Arc<str>,
    /// What the module's file holds.
    pub(super) image: Option<Arc<Image>>,
}

impl Place {
    /// One where nothing is mapped.
    pub(super) fn unmapped(address: u64) -> Self {
        let (range, name) = (0..0, "".into());
        Self { module: None, address, unknown: Nameless::NotMapped, range, name, image: None }
    }

    /// Build id of its module; empty if none is known.
    pub(super) fn build_id(&self) -> String {
        self.image.as_ref().map_or_else(String::new, |image| image.build_id.clone())
    }
}

/// What places are found with.
#[derive(Debug)]
pub(super) struct Places<'a> {
    /// The process that addresses are in.
    pub(super) process: &'a mut Process,
    /// What was read of files.
    pub(super) modules: &'a mut Modules,
    /// This instant.
    pub(super) now: Instant,
}

impl Places<'_> {
    /// Where an address is; `None` if no code is mapped there.
    pub(super) fn find(&mut self, address: u64) -> Option<Place> {
        let Mapping { range, what } = self.process.code(address, self.now)?;
        let inside = address - range.start;
        Some(match what {
            Mapped::Anonymous => Place {
                module: Some(ModuleKey::Made(self.process.life)),
                address,
                unknown: Nameless::NotLookedUp,
                range,
                name: "[jit]".into(),
                image: None,
            },
            Mapped::Vdso => {
                let image = self
                    .image(ModuleKey::Vdso, |_| vdso().and_then(|bytes| Image::read(&*bytes)).ok_or(Nameless::Damaged));
                in_image(ModuleKey::Vdso, inside, range, "[vdso]".into(), image)
            }
            Mapped::File { offset, name } => {
                let offset = offset.wrapping_add(inside);
                match self.process.file(&range) {
                    Ok(file) => {
                        let key = ModuleKey::File(file);
                        let image = self.image(key, |process| {
                            let (_, file) = process.open(&range)?;
                            Image::read(&file).ok_or(Nameless::Damaged)
                        });
                        in_image(key, offset, range, name, image)
                    }
                    Err(reason) => {
                        let key = ModuleKey::Closed { life: self.process.life, start: range.start };
                        in_image(key, offset, range, name, Err(reason))
                    }
                }
            }
        })
    }

    fn image(
        &mut self,
        key: ModuleKey,
        read: impl FnOnce(&Process) -> Result<Image, Nameless>,
    ) -> Result<Arc<Image>, Nameless> {
        if let Some(known) = self.modules.get(key) {
            return known.image.clone();
        }
        let image = read(self.process).map(Arc::new);
        self.modules.keep(key, Known { image: image.clone(), source: Weak::new() });
        image
    }
}

fn in_image(
    module: ModuleKey,
    offset: u64,
    range: Range<u64>,
    name: Arc<str>,
    image: Result<Arc<Image>, Nameless>,
) -> Place {
    let found = image.and_then(|image| Ok((image.address(offset).ok_or(Nameless::Damaged)?, image)));
    let module = Some(module);
    match found {
        Ok((address, image)) => {
            Place { module, address, unknown: Nameless::NotLookedUp, range, name, image: Some(image) }
        }
        Err(unknown) => Place { module, address: offset, unknown, range, name, image: None },
    }
}
