//! Names of code that was made at run time.

use super::asking::{ask, symbolizer};
use super::files::root;
use probe_user::stack::Nameless;
use probe_user::stack::wanted::{PerfMap, ProcessRoot, Source};
use rustix::fs::{Gid, Uid, chown};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const TEXT: &str = "7f0000001000 40 LazyCompile:*serve app.js:3\n7f0000002000 10 py::work:/srv/app.py\n";
const PLACE: u64 = 0x7f00_0000_1020;

fn source(dir: &Path, own_tgid: u32, uid: u32) -> Arc<Source> {
    let process = Arc::new(ProcessRoot { root: Some(root(dir)) });
    Arc::new(Source::PerfMap(PerfMap { tgid: 4711, own_tgid, uid, process }))
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn a_map_is_found_by_the_process_own_number_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tmp")).unwrap();
    let (source, mut symbolizer) = (source(dir.path(), 7, me()), symbolizer());
    assert_eq!(ask(&mut symbolizer, &source, &[PLACE])[0].unknown, Some(Nameless::NoPerfMap));
    let map = dir.path().join("tmp/perf-7.map");
    fs::write(&map, TEXT).unwrap();
    let named = ask(&mut symbolizer, &source, &[PLACE, 0x7f00_0000_2001, 0x7f00_0000_3000]);
    assert_eq!(named[0].functions[0].name, "LazyCompile:*serve app.js:3");
    assert_eq!(named[1].functions[0].name, "py::work:/srv/app.py");
    assert_eq!(named[2].unknown, Some(Nameless::NoSymbol));
    fs::write(&map, format!("{TEXT}7f0000003000 8 later\n")).unwrap();
    assert_eq!(ask(&mut symbolizer, &source, &[0x7f00_0000_3000])[0].functions[0].name, "later");
}

#[test]
fn a_map_that_may_be_somebody_else_s_is_none() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tmp")).unwrap();
    let (map, mut symbolizer) = (dir.path().join("tmp/perf-7.map"), symbolizer());
    fs::write(dir.path().join("elsewhere"), TEXT).unwrap();
    std::os::unix::fs::symlink("/elsewhere", &map).unwrap();
    let ours = source(dir.path(), 7, me());
    assert_eq!(ask(&mut symbolizer, &ours, &[PLACE])[0].unknown, Some(Nameless::NoPerfMap), "a link");
    fs::remove_file(&map).unwrap();
    fs::create_dir(&map).unwrap();
    assert_eq!(ask(&mut symbolizer, &ours, &[PLACE])[0].unknown, Some(Nameless::NoPerfMap), "a directory");
    fs::remove_dir(&map).unwrap();
    fs::write(&map, TEXT).unwrap();
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give a file away");
    }
    chown(&map, Some(Uid::from_raw(1234)), Some(Gid::from_raw(1234))).unwrap();
    assert_eq!(ask(&mut symbolizer, &ours, &[PLACE])[0].unknown, Some(Nameless::NoPerfMap), "another user's");
    let theirs = source(dir.path(), 7, 1234);
    assert_eq!(ask(&mut symbolizer, &theirs, &[PLACE])[0].functions.len(), 1, "its own user's");
}
