//! A Go program, with and without its symbols, by Debian's compiler.

use super::asking::{ask, symbolizer};
use super::files::{build_id, file};
use super::programs::addresses;
use probe_tests::lab::software::golang::Go;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCE: &str = "\
package main
type Server struct{ turns int }
//go:noinline
func (s *Server) Serve(n int) int { s.turns += n; return step(s.turns) }
func step(n int) int { return twice(n) + 1 }
//go:noinline
func twice(n int) int { return n * 2 }
func main() { println((&Server{}).Serve(3)) }
";

fn build(go: &Go, dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = dir.join(name);
    let mut command = go.build(dir);
    command.args(flags).arg("-o").args([&program, &dir.join("server.go")]).env("CGO_ENABLED", "0");
    let built = command.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

#[test]
fn go_functions_are_named_in_stripped_programs_too() {
    let go = match Go::fetched() {
        Ok(go) => go,
        Err(why) => return println!("skipped: Go cannot be had from Debian: {why:#}"),
    };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("server.go"), SOURCE).unwrap();
    let mut symbolizer = symbolizer();
    let whole = build(&go, dir.path(), "whole", &[]);
    let serve: Vec<u64> = addresses(&whole, "main.(*Server).Serve").collect();
    let named = ask(&mut symbolizer, &file(&whole, &build_id(&whole)), &serve);
    let told = |named: &[probe_user::symbolize::Named]| -> Vec<Vec<(String, u32)>> {
        let functions = named.iter().map(|place| &place.functions);
        functions.map(|all| all.iter().map(|function| (function.name.clone(), function.line)).collect()).collect()
    };
    let inlined = [("main.step".to_owned(), 5), ("main.(*Server).Serve".to_owned(), 4)];
    assert!(told(&named).iter().any(|functions| *functions == inlined), "{:?}", told(&named));
    for (name, flags) in [("stripped", &["-ldflags=-s -w"][..]), ("anywhere", &["-ldflags=-s -w", "-buildmode=pie"])] {
        let with_symbols = build(&go, dir.path(), "symbols", &flags[1..]);
        let place = addresses(&with_symbols, "main.twice").start;
        let stripped = build(&go, dir.path(), name, flags);
        let named = ask(&mut symbolizer, &file(&stripped, &build_id(&stripped)), &[place]);
        let names: Vec<_> = told(&named)[0].iter().map(|function| function.0.clone()).collect();
        assert_eq!(names, ["main.twice"], "{name}: {named:?}");
    }
}
