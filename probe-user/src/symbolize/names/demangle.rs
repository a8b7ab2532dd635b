//! Names as people wrote them.

use super::super::message::MAX_NAME;
use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use std::fmt::{self, Write};

/// Longest name that is demangled; longer ones are cut and stay as they are.
const MAX_MANGLED: usize = 8 << 10;
/// How deep a C++ name may be nested: its parser recurses.
const MAX_DEPTH: u32 = 96;

/// A Rust or C++ name without its mangling, any other as it is; cut to what is kept.
pub(super) fn demangle(name: &str) -> String {
    let name = without_version(name);
    if name.len() > MAX_MANGLED {
        return cut(name);
    }
    rust(name).or_else(|| cpp(name)).unwrap_or_else(|| cut(name))
}

/// `memcpy@@GLIBC_2.14` is `memcpy`.
fn without_version(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded::default();
    // Cut at its bound is good enough.
    let _ = write!(text, "{demangled:#}");
    text.kept()
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    let symbol = Symbol::new_with_options(name, &ParseOptions::default().recursion_limit(MAX_DEPTH)).ok()?;
    let mut text = Bounded::default();
    let options = DemangleOptions::new().no_params().recursion_limit(MAX_DEPTH);
    let _ = symbol.structured_demangle(&mut text, &options);
    text.kept()
}

/// The beginning of a text, whole characters.
pub(super) fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_NAME);
    text.get(..end).unwrap_or_default().to_owned()
}

/// A text that refuses to grow: a short mangled name can stand for gigabytes.
#[derive(Default)]
struct Bounded(String);

impl Bounded {
    fn kept(self) -> Option<String> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(MAX_NAME - self.0.len());
        self.0.push_str(text.get(..end).unwrap_or_default());
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_their_languages_write_them() {
        assert_eq!(demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(demangle("_RNvCs15kBYyAo9fc_7mycrate7example"), "mycrate::example");
        assert_eq!(demangle("_ZN3foo3barEv"), "foo::bar");
        assert_eq!(demangle("_ZNSt6vectorIiSaIiEE9push_backEOi"), "std::vector<int, std::allocator<int> >::push_back");
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle("main.(*server).serve"), "main.(*server).serve");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
    }

    /// Each level doubles what the name stands for.
    #[test]
    fn a_name_that_grows_without_end_is_cut() {
        let mut name = String::from("_Z1f1AIiE");
        for level in 0..60 {
            let twice = if level == 0 { "S0_".to_owned() } else { format!("S{}_", level) };
            write!(name, "1BI{twice}{twice}E").unwrap();
        }
        assert!(demangle(&name).len() <= MAX_NAME);
        assert!(demangle(&"x".repeat(1 << 16)).len() <= MAX_NAME);
        assert_eq!(cut(&"ö".repeat(MAX_NAME)).len(), MAX_NAME);
    }
}
