//! The children as the kernel shows them.

use super::asking::{ask, children, handed, symbolizer};
use super::files::{build_id, root};
use super::programs::{C, addresses, build, run};
use std::fs::{self, File};
use std::path::Path;

/// A line of `/proc/PID/status`.
pub(crate) fn status(process: &Path, field: &str) -> Option<String> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
    line.map(|line| line.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn children_have_no_privileges() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("plain.c", C), &["cc", "-O1"]);
    let (place, build_id) = (addresses(&program, "opaque").start, build_id(&program));
    run(dir.path(), &["strip", "plain.c.out"]);
    let mut symbolizer = symbolizer();
    let source = handed(File::open(&program).unwrap(), &build_id, Some(root(dir.path())));
    // It is stripped, so the child that opens was needed too.
    ask(&mut symbolizer, &source, &[place]);
    let sandbox = symbolizer.sandbox().expect("a child was started");
    let (naming, opening) = (children("whylag-names"), children("whylag-opens"));
    assert!(!naming.is_empty() && !opening.is_empty());
    for child in naming.iter().chain(&opening) {
        // One of another test may have ended meanwhile.
        let Some(privileges) = status(child, "NoNewPrivs") else { continue };
        assert_eq!(privileges, "1", "{}", child.display());
        assert_eq!(status(child, "CapInh").as_deref().unwrap_or("0000000000000000"), "0000000000000000");
    }
    if sandbox.is_complete() {
        for child in &naming {
            let Some(capabilities) = status(child, "CapEff") else { continue };
            assert_eq!(capabilities, "0000000000000000");
            assert_eq!(status(child, "Seccomp").as_deref().unwrap_or("2"), "2");
            assert_ne!(status(child, "Uid").as_deref(), Some("0 0 0 0"));
        }
    } else {
        println!("skipped in part: {:?}", sandbox.missing().collect::<Vec<_>>());
    }
    drop(symbolizer);
}
