//! A Go program, with and without its symbols, by Debian's compiler.

use super::asking::{ask, symbolizer};
use super::files::{build_id, file};
use super::programs::addresses;
use anyhow::{Context, Result};
use debian_packages::{Index, Lock, Steps};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];
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

fn compiler() -> Result<PathBuf> {
    let cache = bpf_toolchain::user_cache()?.join("compilers-1");
    let root = cache.join("go");
    if root.exists() {
        return Ok(root);
    }
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock = Lock::take(&cache)?;
    let steps = Steps::new(&cache, &lock);
    let mut index = Index::new(&cache, &steps);
    let names = PACKAGES.map(str::to_owned);
    debian_packages::install("go", &cache, &mut index, &[], |index| index.resolve(&names))
}

fn build(root: &Path, dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = dir.join(name);
    let mut go = Command::new(root.join("usr/lib/go-1.19/bin/go"));
    go.args(["build", "-trimpath"]).args(flags).arg("-o").args([&program, &dir.join("server.go")]);
    go.env("GOROOT", root.join("usr/lib/go-1.19")).env("GOCACHE", dir.join("cache")).env("GOPATH", dir.join("path"));
    let built = go.env("GO111MODULE", "off").env("CGO_ENABLED", "0").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

#[test]
fn go_functions_are_named_in_stripped_programs_too() {
    let root = match compiler() {
        Ok(root) => root,
        Err(why) => return println!("skipped: Go cannot be had from Debian: {why:#}"),
    };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("server.go"), SOURCE).unwrap();
    let mut symbolizer = symbolizer();
    let whole = build(&root, dir.path(), "whole", &[]);
    let serve: Vec<u64> = addresses(&whole, "main.(*Server).Serve").collect();
    let named = ask(&mut symbolizer, &file(&whole, &build_id(&whole)), &serve);
    let told = |named: &[probe_user::symbolize::Named]| -> Vec<Vec<(String, u32)>> {
        let functions = named.iter().map(|place| &place.functions);
        functions.map(|all| all.iter().map(|function| (function.name.clone(), function.line)).collect()).collect()
    };
    let inlined = [("main.step".to_owned(), 5), ("main.(*Server).Serve".to_owned(), 4)];
    assert!(told(&named).iter().any(|functions| *functions == inlined), "{:?}", told(&named));
    for (name, flags) in [("stripped", &["-ldflags=-s -w"][..]), ("anywhere", &["-ldflags=-s -w", "-buildmode=pie"])] {
        let with_symbols = build(&root, dir.path(), "symbols", &flags[1..]);
        let place = addresses(&with_symbols, "main.twice").start;
        let stripped = build(&root, dir.path(), name, flags);
        let named = ask(&mut symbolizer, &file(&stripped, &build_id(&stripped)), &[place]);
        let names: Vec<_> = told(&named)[0].iter().map(|function| function.0.clone()).collect();
        assert_eq!(names, ["main.twice"], "{name}: {named:?}");
    }
}
