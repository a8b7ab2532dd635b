//! What is right must be named right.

use super::asking::{ask, file, names, no_root, symbolizer};
use super::programs::{C, CPP, RUST, addresses, build, build_id};
use probe_user::stack::{Function, Nameless};

#[test]
fn inlined_functions_are_told_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("inline.c", C), &["cc", "-O2", "-g", "-fno-optimize-sibling-calls"]);
    let places: Vec<u64> = addresses(&program, "outer").collect();
    let named = ask(&mut symbolizer(), &file(&program, &build_id(&program), no_root()), &places);
    assert!(named.iter().all(|named| named.functions.last().is_some_and(|outermost| outermost.name == "outer")));
    let inlined = named.iter().find(|named| named.functions.len() == 2).expect("a place of the inlined function");
    let told: Vec<_> = inlined.functions.iter().map(|f| (f.name.as_str(), f.line)).collect();
    assert_eq!(told, [("inner", 3), ("outer", 6)]);
    assert!(inlined.functions.iter().all(|function| function.file.ends_with("/inline.c")));
    assert!(named.iter().any(|named| named.functions.iter().any(|f| f.name == "outer" && f.line == 7)), "and its end");
}

#[test]
fn cpp_and_rust_names_are_demangled() {
    let dir = tempfile::tempdir().unwrap();
    let cpp = build(dir.path(), ("cart.cpp", CPP), &["c++", "-O1"]);
    let rust = build(dir.path(), ("server.rs", RUST), &["rustc", "-O", "-g"]);
    let mut symbolizer = symbolizer();
    let named = ask(&mut symbolizer, &file(&cpp, "", no_root()), &[addresses(&cpp, "3add").start]);
    assert_eq!(names(&named[0].functions), ["shop::Cart<long>::add"]);
    let named = ask(&mut symbolizer, &file(&rust, "", no_root()), &[addresses(&rust, "4turn").start]);
    assert_eq!(names(&named[0].functions).last(), Some(&"server::server::Loop::turn"));
    assert!(
        named[0].functions.last().is_some_and(|function| function.line == 2 && function.file.ends_with("server.rs"))
    );
    assert!(symbolizer.sandbox().is_some());
}

#[test]
fn stripped_and_foreign_files_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), ("plain.c", C), &["cc", "-O1"]);
    let place = addresses(&program, "opaque").start;
    let mut symbolizer = symbolizer();
    let other = "0123456789012345678901234567890123456789";
    let named = ask(&mut symbolizer, &file(&program, other, no_root()), &[place]);
    assert_eq!((&*named[0].functions, named[0].unknown), (&[][..] as &[Function], Some(Nameless::OtherBuildId)));
    super::programs::run(dir.path(), &["strip", "plain.c.out"]);
    let named = ask(&mut symbolizer, &file(&program, &build_id(&program), no_root()), &[place]);
    assert_eq!(named[0].unknown, Some(Nameless::NoSymbol));
}
