//! Small programs that the tests build, and where their functions are.

use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `outer` calls `inner`, which is inlined at line 4, and there calls `opaque` at line 3.
pub(crate) const C: &str = "\
int opaque(int);
static inline __attribute__((always_inline)) int inner(int x) {
  return opaque(x * 3) + 1;
}
__attribute__((noinline)) int outer(int x) {
  return inner(x) + 2;
}
__attribute__((noinline)) int opaque(int x) { __asm__ volatile(\"\"); return x; }
int main(int argc, char **argv) { return outer(argc) + outer(argc + 1); }
";

pub(crate) const CPP: &str = "\
namespace shop { template <class T> struct Cart { __attribute__((noinline)) int add(T x) { __asm__ volatile(\"\"); return (int)x; } }; }
template struct shop::Cart<long>;
int main() { return shop::Cart<long>().add(3L); }
";

/// Compiles a source with a command whose last argument is the source.
pub(crate) fn build(dir: &Path, source: (&str, &str), command: &[&str]) -> PathBuf {
    let (name, text) = source;
    let (path, program) = (dir.join(name), dir.join(format!("{name}.out")));
    std::fs::write(&path, text).unwrap();
    let (compiler, args) = command.split_first().unwrap();
    let built = Command::new(compiler).args(args).arg("-o").arg(&program).arg(name).current_dir(dir).output();
    let built = built.unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(built.status.success(), "{compiler}: {}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Runs a command in a directory.
pub(crate) fn run(dir: &Path, command: &[&str]) {
    let (program, args) = command.split_first().unwrap();
    let done = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// All addresses of the function whose symbol has these words in its name.
pub(crate) fn addresses(program: &Path, name: &str) -> std::ops::Range<u64> {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let symbol = elf.symbols().find(|symbol| symbol.size() > 0 && symbol.name().is_ok_and(|its| its.contains(name)));
    let symbol = symbol.unwrap_or_else(|| panic!("no symbol {name}"));
    symbol.address()..symbol.address() + symbol.size()
}
