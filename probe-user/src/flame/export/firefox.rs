//! The Firefox Profiler's processed profile: one thread whose samples weigh their nanoseconds. In a
//! differential graph the weights are the differences, so that its call tree shows what grew.
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>

use super::super::graph::{Graph, Share, Width};
use super::super::tower::Kind;
use super::{group, name};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp,
    SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};

/// The graph as one JSON document.
pub(in crate::flame) fn firefox(graph: &Graph) -> serde_json::Result<Vec<u8>> {
    let start = ReferenceTimestamp::from_millis_since_unix_epoch(0.0);
    let mut profile = Profile::new(&graph.title, start, SamplingInterval::from_nanos(1));
    let begin = Timestamp::from_nanos_since_reference(0);
    let process = profile.add_process("whylag", 1, begin);
    let thread = profile.add_thread(process, 1, begin, true);
    profile.set_thread_name(thread, graph.measure);
    profile.set_symbolicated(true);
    let categories = Categories::of(&mut profile);
    let mut now = 0;
    for share in &graph.shares {
        let stack = stack(&mut profile, thread, &categories, share);
        now = weigh(&mut profile, thread, stack, share.width, now);
    }
    serde_json::to_vec(&profile)
}

/// Adds a stack that weighs as many nanoseconds as its width, from `now` on; when it ends. A weight
/// has 31 bits, two seconds; what is longer becomes several samples.
fn weigh(profile: &mut Profile, thread: ThreadHandle, stack: Option<StackHandle>, width: Width, now: u64) -> u64 {
    let before = width.before().unwrap_or_default();
    let (mut rest, sign) = match width.now().0.checked_sub(before.0) {
        Some(more) => (more, 1),
        None => (before.0 - width.now().0, -1),
    };
    let mut at = now;
    while rest > 0 {
        let part = i32::try_from(rest).unwrap_or(i32::MAX);
        profile.add_sample(thread, Timestamp::from_nanos_since_reference(at), stack, CpuDelta::ZERO, sign * part);
        let part = u64::from(part.unsigned_abs());
        (rest, at) = (rest - part, at.saturating_add(part));
    }
    at
}

fn stack(profile: &mut Profile, thread: ThreadHandle, categories: &Categories, share: &Share) -> Option<StackHandle> {
    let frames: Vec<_> = share
        .tower
        .iter()
        .map(|level| FrameInfo {
            frame: Frame::Label(profile.intern_string(name(level))),
            category_pair: categories.of_kind(level.kind).into(),
            flags: FrameFlags::empty(),
        })
        .collect();
    profile.intern_stack_frames(thread, frames.into_iter())
}

struct Categories(Vec<(&'static str, CategoryHandle)>);

impl Categories {
    fn of(profile: &mut Profile) -> Self {
        let colours = [
            (Kind::Custody, CategoryColor::Gray),
            (Kind::Cause, CategoryColor::Orange),
            (Kind::Thread, CategoryColor::LightBlue),
            (Kind::User, CategoryColor::Green),
            (Kind::Kernel, CategoryColor::Yellow),
        ];
        Self(colours.map(|(kind, colour)| (group(kind), profile.add_category(group(kind), colour))).to_vec())
    }

    fn of_kind(&self, kind: Kind) -> CategoryHandle {
        let own = self.0.iter().find(|(name, _)| *name == group(kind));
        own.map_or(CategoryHandle::OTHER, |(_, handle)| *handle)
    }
}
