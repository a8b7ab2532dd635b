//! Debug information in a file of its own, below the root of the process.

use super::asking::{ask, handed, symbolizer};
use super::files::{build_id, root};
use super::programs::{C, addresses, build, run};
use probe_user::stack::Nameless;
use probe_user::symbolize::Named;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A stripped program, and its debug information.
struct Split {
    dir: tempfile::TempDir,
    program: PathBuf,
    debug: PathBuf,
    build_id: String,
    place: u64,
}

impl Split {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = build(dir.path(), ("split.c", C), &["cc", "-O2", "-g"]);
        let (place, build_id) = (addresses(&program, "opaque").start, build_id(&program));
        run(dir.path(), &["objcopy", "--only-keep-debug", "split.c.out", "split.debug"]);
        run(dir.path(), &["strip", "split.c.out"]);
        let debug = dir.path().join("split.debug");
        Self { dir, program, debug, build_id, place }
    }

    /// Where debug information of this build must lie.
    fn home(&self) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        let home = self.dir.path().join("usr/lib/debug/.build-id").join(first);
        fs::create_dir_all(&home).unwrap();
        home.join(format!("{rest}.debug"))
    }

    fn ask(&self) -> Named {
        let source = handed(File::open(&self.program).unwrap(), &self.build_id, Some(root(self.dir.path())));
        ask(&mut symbolizer(), &source, &[self.place]).remove(0)
    }
}

fn link(target: &Path, link: &Path) {
    std::os::unix::fs::symlink(target, link).unwrap();
}

#[test]
fn a_debug_file_in_the_root_of_the_process_tells_lines() {
    let split = Split::make();
    assert_eq!(split.ask().unknown, Some(Nameless::NoSymbol));
    fs::copy(&split.debug, split.home()).unwrap();
    let named = split.ask();
    assert_eq!((named.functions[0].name.as_str(), named.functions[0].line), ("opaque", 8));
}

#[test]
fn a_link_is_followed_below_the_root_and_never_out_of_it() {
    let split = Split::make();
    link(Path::new("/split.debug"), &split.home());
    assert_eq!(split.ask().functions[0].name, "opaque", "an absolute link begins at the root of the process");
    fs::remove_file(split.home()).unwrap();
    link(&split.debug, &split.home());
    assert_eq!(split.ask().unknown, Some(Nameless::NoSymbol), "the host's path is not there");
    fs::remove_file(split.home()).unwrap();
    link(&Path::new(&"../".repeat(12)).join(split.debug.strip_prefix("/").unwrap()), &split.home());
    assert_eq!(split.ask().unknown, Some(Nameless::NoSymbol), "nor a way up");
}

#[test]
fn a_debug_file_of_another_build_is_told() {
    let split = Split::make();
    let other = build(split.dir.path(), ("other.c", "int main(void) { return 7; }"), &["cc", "-g"]);
    fs::copy(other, split.home()).unwrap();
    assert_eq!(split.ask().unknown, Some(Nameless::OtherBuildId));
}

#[test]
fn a_fifo_in_place_of_a_debug_file_is_none() {
    let split = Split::make();
    run(split.dir.path(), &["mkfifo", split.home().to_str().unwrap()]);
    assert_eq!(split.ask().unknown, Some(Nameless::NoSymbol));
}
