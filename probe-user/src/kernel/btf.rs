//! The running kernel's type information.
//!
//! In: `/sys/kernel/btf/vmlinux`. Out: byte offsets of fields, argument counts of tracepoints,
//! names of enum values. Format: <https://docs.kernel.org/bpf/btf.html>.

use std::{collections::HashMap, fs, io, path::Path};

use thiserror::Error;

/// Where the kernel keeps it.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Anonymous members nest a few levels deep in `sk_buff`; anything deeper is not the kernel's.
const MAX_NESTING: usize = 16;

/// Type information that cannot be used.
#[derive(Debug, Error)]
pub enum BtfError {
    /// The file cannot be read.
    #[error("cannot read the kernel's type information at {VMLINUX}")]
    Read(#[source] io::Error),
    /// The bytes are not BTF of this machine's byte order.
    #[error("{VMLINUX} is not type information that this version understands: {0}")]
    Malformed(&'static str),
}

/// Kinds that are looked at. <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/btf.h>
mod kind {
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const TYPE_TAG: u32 = 18;
}

/// Bytes behind a type's first three words: fixed ones, and ones for each of its elements.
const fn extra_bytes(kind: u32) -> Option<(usize, usize)> {
    Some(match kind {
        // integer, variable, declaration tag
        1 | kind::VARIABLE | 17 => (4, 0),
        kind::ARRAY => (12, 0),
        // structures, unions, data sections, 64-bit enums: three words a member
        kind::STRUCT | kind::UNION | kind::SECTION | 19 => (0, 12),
        // enums and function prototypes: two words
        kind::ENUM | 13 => (0, 8),
        // pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags
        2 | 7..=12 | 16 | 18 => (0, 0),
        _ => return None,
    })
}

/// One type, as it lies in the file.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    elements: u32,
    /// Members of a bit-field structure carry their width in the upper byte of their offset.
    has_bitfields: bool,
    /// Size, or the type it refers to.
    size_or_type: u32,
    /// Where its elements begin.
    extra: usize,
}

/// The kernel's types.
#[derive(Debug)]
pub struct KernelBtf {
    bytes: Vec<u8>,
    strings: usize,
    types: Vec<Type>,
    by_name: HashMap<(u32, Box<[u8]>), u32>,
}

impl KernelBtf {
    /// Reads the running kernel's.
    ///
    /// # Errors
    ///
    /// When the kernel has none (`CONFIG_DEBUG_INFO_BTF`) or it cannot be understood.
    pub fn of_running_kernel() -> Result<Self, BtfError> {
        Self::parse(fs::read(Path::new(VMLINUX)).map_err(BtfError::Read)?)
    }

    /// Takes the bytes of a BTF file.
    ///
    /// # Errors
    ///
    /// When they are not BTF of this machine's byte order.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let cut = || BtfError::Malformed("it ends early");
        let word = |at| word(&bytes, at).ok_or_else(cut);
        if word(0)? & 0xffff != u32::from(MAGIC) {
            return Err(BtfError::Malformed("the magic number is wrong"));
        }
        let header = word(4)? as usize;
        let first = header.saturating_add(word(8)? as usize);
        let end = first.saturating_add(word(12)? as usize);
        let strings = header.saturating_add(word(16)? as usize);
        let types = read_types(&bytes, first, end)?;
        let mut btf = Self { bytes, strings, types, by_name: HashMap::new() };
        btf.by_name = btf.index();
        Ok(btf)
    }

    /// The first type of each (kind, name), of the kinds that are asked for by name.
    fn index(&self) -> HashMap<(u32, Box<[u8]>), u32> {
        let mut index = HashMap::with_capacity(1 << 15);
        for (id, ty) in (0..).zip(&self.types) {
            let is_asked_for = matches!(ty.kind, kind::STRUCT | kind::ENUM | kind::SECTION)
                || (ty.kind == kind::TYPEDEF && self.text(ty.name).starts_with(b"btf_trace_"))
                || (ty.kind == kind::FUNC && self.text(ty.name).starts_with(b"tcx_"));
            if is_asked_for && ty.name != 0 {
                index.entry((ty.kind, self.text(ty.name).into())).or_insert(id);
            }
        }
        index
    }

    /// Byte offset of a field, such as `("sk_buff", "network_header")` or, through structures,
    /// `("sock", "__sk_common.skc_num")`. Anonymous members are looked through. Of a section of
    /// variables, such as `(".data..percpu", "runqueues")`, the variables are the fields. `None`
    /// when the kernel has no such field, or it is a bit-field.
    #[must_use]
    pub fn field_offset(&self, structure: &str, path: &str) -> Option<u32> {
        let section = || self.find(kind::SECTION, structure);
        let mut id = self.find(kind::STRUCT, structure).or_else(section)?;
        let mut bits = 0_u32;
        for name in path.split('.') {
            let (offset, ty) = self.member(id, name.as_bytes(), MAX_NESTING)?;
            bits = bits.checked_add(offset)?;
            id = self.resolve(ty)?;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Number of arguments that the kernel passes to a `tp_btf` program of this tracepoint;
    /// `None` when there is no such tracepoint.
    #[must_use]
    pub fn tracepoint_arguments(&self, tracepoint: &str) -> Option<u32> {
        let typedef = self.find(kind::TYPEDEF, &format!("btf_trace_{tracepoint}"))?;
        let pointer = self.get(self.get(typedef)?.size_or_type)?;
        let prototype = (pointer.kind == kind::POINTER).then(|| self.get(pointer.size_or_type))??;
        // The first one is the kernel's own.
        prototype.elements.checked_sub(1)
    }

    /// Whether the kernel has this function.
    #[must_use]
    pub fn has_tcx_function(&self, name: &str) -> bool {
        self.find(kind::FUNC, name).is_some()
    }

    /// Names of an enum's values, in the order of the kernel's source.
    #[must_use]
    pub fn enum_names(&self, name: &str) -> Vec<(u32, String)> {
        let Some(ty) = self.find(kind::ENUM, name).and_then(|id| self.get(id)) else {
            return Vec::new();
        };
        let value = |i: u32| {
            let at = ty.extra + 8 * i as usize;
            let name = String::from_utf8_lossy(self.text(word(&self.bytes, at)?)).into_owned();
            Some((word(&self.bytes, at + 4)?, name))
        };
        (0..ty.elements).filter_map(value).collect()
    }

    fn find(&self, kind: u32, name: &str) -> Option<u32> {
        self.by_name.get(&(kind, Box::from(name.as_bytes()))).copied()
    }

    fn get(&self, id: u32) -> Option<&Type> {
        self.types.get(id as usize)
    }

    /// Bit offset and type of a member, looking through anonymous structures and unions.
    fn member(&self, id: u32, name: &[u8], nesting: usize) -> Option<(u32, u32)> {
        let ty = self.get(id)?;
        match ty.kind {
            kind::STRUCT | kind::UNION => {}
            kind::SECTION => return self.variable(ty, name),
            _ => return None,
        }
        (0..ty.elements).find_map(|i| {
            let at = ty.extra + 12 * i as usize;
            let (member, target) = (word(&self.bytes, at)?, word(&self.bytes, at + 4)?);
            let offset = word(&self.bytes, at + 8)? & if ty.has_bitfields { 0xff_ffff } else { !0 };
            if member == 0 {
                let inner = self.resolve(target)?;
                let (inside, ty) = self.member(inner, name, nesting.checked_sub(1)?)?;
                return Some((offset.checked_add(inside)?, ty));
            }
            (self.text(member) == name).then_some((offset, target))
        })
    }

    /// Bit offset and type of a variable in its section.
    fn variable(&self, section: &Type, name: &[u8]) -> Option<(u32, u32)> {
        (0..section.elements).find_map(|i| {
            let at = section.extra + 12 * i as usize;
            let variable = self.get(word(&self.bytes, at)?)?;
            let is_it = variable.kind == kind::VARIABLE && self.text(variable.name) == name;
            let offset = word(&self.bytes, at + 4)?;
            is_it.then_some((offset.checked_mul(8)?, variable.size_or_type))
        })
    }

    /// The type behind typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<u32> {
        for _ in 0..MAX_NESTING {
            let ty = self.get(id)?;
            match ty.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = ty.size_or_type;
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn text(&self, offset: u32) -> &[u8] {
        let from = self.strings.saturating_add(offset as usize);
        let rest = self.bytes.get(from..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

fn read_types(bytes: &[u8], mut at: usize, end: usize) -> Result<Vec<Type>, BtfError> {
    let cut = || BtfError::Malformed("a type is cut");
    let void = Type { name: 0, kind: 0, elements: 0, has_bitfields: false, size_or_type: 0, extra: 0 };
    let mut types = vec![void];
    while at < end {
        let word = |at| word(bytes, at).ok_or_else(cut);
        let info = word(at + 4)?;
        let ty = Type {
            name: word(at)?,
            kind: info >> 24 & 0x1f,
            elements: info & 0xffff,
            has_bitfields: info >> 31 == 1,
            size_or_type: word(at + 8)?,
            extra: at + 12,
        };
        let extra = extra_bytes(ty.kind).ok_or(BtfError::Malformed("a kind is unknown"))?;
        at = ty.extra + extra.0 + extra.1 * ty.elements as usize;
        types.push(ty);
    }
    Ok(types)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { int first; union { struct inner in; long word; }; }` and
    /// `struct inner { int a; int b; }`, an enum, a tracepoint, and a section with an `inner`.
    fn small() -> Vec<u8> {
        let names = "\0outer\0first\0in\0word\0inner\0a\0b\0color\0RED\0GREEN\0btf_trace_x\0int\0.data\0all\0";
        let name = |text: &str| {
            let at = names.find(&format!("\0{text}\0")).unwrap() + 1;
            u32::try_from(at).unwrap()
        };
        let info = |kind: u32, elements: u32| kind << 24 | elements;
        let words: Vec<u32> = [
            vec![name("int"), info(1, 0), 4, 32],
            vec![name("inner"), info(4, 2), 8, name("a"), 1, 0, name("b"), 1, 32],
            vec![0, info(5, 2), 8, name("in"), 2, 0, name("word"), 1, 0],
            vec![name("outer"), info(4, 2), 16, name("first"), 1, 0, 0, 3, 64],
            vec![name("color"), info(6, 2), 4, name("RED"), 2, name("GREEN"), 3],
            vec![0, info(13, 3), 0, 0, 1, 0, 1, 0, 1],
            vec![0, info(2, 0), 6],
            vec![name("btf_trace_x"), info(8, 0), 7],
            vec![name("all"), info(14, 0), 2, 0],
            vec![name(".data"), info(15, 1), 64, 9, 48, 8],
        ]
        .concat();
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let lengths = [24, 0, types.len(), types.len(), names.len()];
        let header = lengths.iter().flat_map(|len| u32::try_from(*len).unwrap().to_ne_bytes());
        let mut bytes = [u16::to_ne_bytes(MAGIC).as_slice(), &[1, 0]].concat();
        bytes.extend(header);
        bytes.extend(types);
        bytes.extend(names.bytes());
        bytes
    }

    #[test]
    fn fields_are_found_through_anonymous_members_and_paths() {
        let btf = KernelBtf::parse(small()).unwrap();
        assert_eq!(btf.field_offset("outer", "first"), Some(0));
        assert_eq!(btf.field_offset("outer", "word"), Some(8));
        assert_eq!(btf.field_offset("outer", "in.b"), Some(12));
        assert_eq!(btf.field_offset("outer", "in.c"), None);
        assert_eq!(btf.field_offset("inner", "in"), None);
        assert_eq!(btf.field_offset("nothing", "a"), None);
        assert_eq!(btf.field_offset(".data", "all"), Some(48));
        assert_eq!(btf.field_offset(".data", "all.b"), Some(52));
        assert_eq!(btf.field_offset(".data", "none"), None);
    }

    #[test]
    fn tracepoints_and_enums_are_found() {
        let btf = KernelBtf::parse(small()).unwrap();
        assert_eq!(btf.tracepoint_arguments("x"), Some(2));
        assert_eq!(btf.tracepoint_arguments("y"), None);
        assert_eq!(btf.enum_names("color"), [(2, "RED".into()), (3, "GREEN".into())]);
        assert!(btf.enum_names("outer").is_empty());
    }

    #[test]
    fn cut_and_changed_bytes_are_refused_or_give_nothing_but_never_panic() {
        let bytes = small();
        for len in 0..bytes.len() {
            let _ = KernelBtf::parse(bytes[..len].to_vec());
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                if let Ok(btf) = KernelBtf::parse(bytes) {
                    let _ = btf.field_offset("outer", "in.b");
                    let _ = btf.tracepoint_arguments("x");
                    let _ = btf.enum_names("color");
                }
            }
        }
    }

    #[test]
    fn the_running_kernel_is_understood() {
        let btf = match KernelBtf::of_running_kernel() {
            Ok(btf) => btf,
            Err(error) => return println!("skipped: {error}"),
        };
        assert!(btf.field_offset("sk_buff", "network_header").is_some());
        assert!(btf.field_offset("sock", "__sk_common.skc_num").is_some());
        assert!(btf.tracepoint_arguments("sched_switch").is_some_and(|count| count >= 3));
    }
}
