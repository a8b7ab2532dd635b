//! What is right must be named right.

use super::asking::{ask, symbolizer};
use super::files::{build_id, file};
use super::programs::{C, CPP, addresses, build, run};
use probe_user::stack::wanted::Source;
use probe_user::stack::{Function, Nameless};
use probe_user::symbolize::Symbolizer;
use std::fs::OpenOptions;
use std::sync::Arc;

const RUST: &str = "\
pub mod server { pub struct Loop; impl Loop {
    #[inline(never)] pub fn turn(&self, x: u64) -> u64 { std::hint::black_box(x) + 1 }
} }
fn main() { std::process::exit(server::Loop.turn(2) as i32); }
";

/// The names only, innermost first.
fn names(functions: &[Function]) -> Vec<&str> {
    functions.iter().map(|function| function.name.as_str()).collect()
}

/// A place in the inlined function of the C program has both functions, each with its line.
fn assert_inlined(symbolizer: &mut Symbolizer, source: &Arc<Source>, outer: &[u64]) {
    let named = ask(symbolizer, source, outer);
    assert!(named.iter().all(|named| named.functions.last().is_some_and(|outermost| outermost.name == "outer")));
    let inlined = named.iter().find(|named| named.functions.len() == 2).expect("a place of the inlined function");
    let told: Vec<_> = inlined.functions.iter().map(|f| (f.name.as_str(), f.line)).collect();
    assert_eq!(told, [("inner", 3), ("outer", 6)]);
    assert!(inlined.functions.iter().all(|function| function.file.ends_with("/inline.c")));
}

#[test]
fn inlined_functions_are_told_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let mut symbolizer = symbolizer();
    for how in [["-gdwarf-5", "-gz=none"], ["-gdwarf-4", "-gz=none"], ["-g", "-gz=zlib"]] {
        let command = ["cc", "-O2", "-fno-optimize-sibling-calls", how[0], how[1]];
        let program = build(dir.path(), ("inline.c", C), &command);
        let outer: Vec<u64> = addresses(&program, "outer").collect();
        assert_inlined(&mut symbolizer, &file(&program, &build_id(&program)), &outer);
    }
}

#[test]
fn cpp_and_rust_names_are_demangled() {
    let dir = tempfile::tempdir().unwrap();
    let cpp = build(dir.path(), ("cart.cpp", CPP), &["c++", "-O1"]);
    let rust = build(dir.path(), ("server.rs", RUST), &["rustc", "-O", "-g"]);
    let mut symbolizer = symbolizer();
    let named = ask(&mut symbolizer, &file(&cpp, ""), &[addresses(&cpp, "3add").start]);
    assert_eq!(names(&named[0].functions), ["shop::Cart<long>::add"]);
    let named = ask(&mut symbolizer, &file(&rust, ""), &[addresses(&rust, "4turn").start]);
    assert_eq!(names(&named[0].functions).last(), Some(&"server::server::Loop::turn"));
    let told = named[0].functions.last().unwrap();
    assert!(told.line == 2 && told.file.ends_with("server.rs"), "{told:?}");
}

#[test]
fn a_stripped_file_has_no_symbol_and_another_one_another_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("plain.c", C), &["cc", "-O1"]);
    let place = addresses(&program, "opaque").start;
    let mut symbolizer = symbolizer();
    let other = "0123456789012345678901234567890123456789";
    let named = ask(&mut symbolizer, &file(&program, other), &[place]);
    assert_eq!((named[0].functions.len(), named[0].unknown), (0, Some(Nameless::OtherBuildId)));
    run(dir.path(), &["strip", "plain.c.out"]);
    let named = ask(&mut symbolizer, &file(&program, &build_id(&program)), &[place]);
    assert_eq!(named[0].unknown, Some(Nameless::NoSymbol));
}

#[test]
fn symbols_that_a_stripped_file_has_packed_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("packed.c", C), &["cc", "-O1"]);
    let place = addresses(&program, "opaque").start;
    let mut packed = Vec::new();
    lzma_rs::xz_compress(&mut std::fs::read(&program).unwrap().as_slice(), &mut packed).unwrap();
    std::fs::write(dir.path().join("packed.xz"), packed).unwrap();
    run(dir.path(), &["strip", "packed.c.out"]);
    let section = ["objcopy", "--add-section", ".gnu_debugdata=packed.xz", "packed.c.out"];
    assert_eq!(ask(&mut symbolizer(), &file(&program, ""), &[place])[0].unknown, Some(Nameless::NoSymbol));
    run(dir.path(), &section);
    assert_eq!(names(&ask(&mut symbolizer(), &file(&program, ""), &[place])[0].functions), ["opaque"]);
}

#[test]
fn a_file_as_large_as_a_disk_costs_only_what_its_symbols_take() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("plain.c", C), &["cc", "-O1"]);
    let place = addresses(&program, "opaque").start;
    let mut symbolizer = symbolizer();
    let grow = |bytes| OpenOptions::new().write(true).open(&program).unwrap().set_len(bytes).unwrap();
    grow(1 << 30);
    let named = ask(&mut symbolizer, &file(&program, ""), &[place]);
    assert_eq!(names(&named[0].functions), ["opaque"]);
    grow(5 << 30);
    assert_eq!(ask(&mut symbolizer, &file(&program, ""), &[place])[0].unknown, Some(Nameless::TooLarge));
    let zeros = dir.path().join("zeros");
    std::fs::File::create(&zeros).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(ask(&mut symbolizer, &file(&zeros, ""), &[place])[0].unknown, Some(Nameless::Damaged));
}

#[test]
fn the_kernel_s_own_shared_object_is_named() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        return println!("skipped: this process has no vdso");
    };
    let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut image = vec![0; usize::try_from(end - start).unwrap()];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut image, start).unwrap();
    let source = Arc::new(Source::Vdso(Arc::from(image)));
    let places: Vec<u64> = (0..end - start).step_by(16).collect();
    let named = ask(&mut symbolizer(), &source, &places);
    let told: Vec<_> = named.iter().flat_map(|named| names(&named.functions)).collect();
    assert!(
        told.iter().any(|name| name.ends_with("vdso_clock_gettime") || *name == "__kernel_clock_gettime"),
        "{told:?}"
    );
}

#[test]
fn what_has_no_room_comes_back_as_not_looked_up() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("plain.c", C), &["cc", "-O1"]);
    let place = addresses(&program, "opaque").start;
    let named = ask(&mut symbolizer(), &file(&program, ""), &vec![place; 70_000]);
    let (named, left): (Vec<_>, Vec<_>) = named.iter().partition(|named| named.unknown.is_none());
    assert!(named.len() >= 65_536 && left.len() <= 70_000 - 65_536);
    assert!(left.iter().all(|place| place.unknown == Some(Nameless::NotLookedUp)));
    assert!(named.iter().all(|place| names(&place.functions) == ["opaque"]));
}
