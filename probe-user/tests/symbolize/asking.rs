//! A symbolizer with the real children, and questions to it.

use probe_user::stack::wanted::{MappedFile, ProcessRoot, Source, Wanted};
use probe_user::symbolize::{Named, Symbolizer};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn symbolizer() -> Symbolizer {
    Symbolizer::start_with(Path::new(env!("CARGO_BIN_EXE_whylag")), None).unwrap()
}

/// A file as the unwinder hands it over.
pub(crate) fn handed(file: impl Into<OwnedFd>, build_id: &str, root: Option<OwnedFd>) -> Arc<Source> {
    let (name, build_id) = (String::from("program"), build_id.to_owned());
    let process = Arc::new(ProcessRoot { root });
    Arc::new(Source::File(MappedFile { file: file.into(), name, build_id, process }))
}

/// Asks for places of one source, and waits for all of them; in the order of the addresses.
pub(crate) fn ask(symbolizer: &mut Symbolizer, source: &Arc<Source>, addresses: &[u64]) -> Vec<Named> {
    let wanted = |(frame, address): (usize, &u64)| Wanted {
        frame: u32::try_from(frame).unwrap(),
        source: Arc::clone(source),
        address: *address,
    };
    symbolizer.ask(addresses.iter().enumerate().map(wanted).collect());
    let mut named = wait(symbolizer, addresses.len());
    named.sort_by_key(|named| named.frame);
    named
}

/// Waits for so many answers; each place gives one.
fn wait(symbolizer: &mut Symbolizer, places: usize) -> Vec<Named> {
    let patience = Instant::now() + Duration::from_secs(120);
    let mut named = Vec::new();
    while named.len() < places {
        assert!(Instant::now() < patience, "{} of {places} places came back", named.len());
        named.extend(symbolizer.take());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((named.len(), symbolizer.waiting()), (places, 0));
    named
}

/// Children of this process by their name. Other tests have some too.
pub(crate) fn children(comm: &str) -> Vec<PathBuf> {
    let threads = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<String> = lists.flat_map(|list| list.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let paths = pids.iter().filter(|pid| !pid.is_empty()).map(|pid| PathBuf::from(format!("/proc/{pid}")));
    paths.filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|its| its.trim() == comm)).collect()
}
