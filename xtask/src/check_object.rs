//! The properties that every kernel object must have, read from the built file.
//!
//! In: the object that `probe-user`'s build script left behind. Out: the list of faults.
//! It never loads a program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SectionKind, SymbolKind};

/// Copies and compares byte by byte; a call costs a hot program about 12 ns.
const BYTE_LOOPS: [&str; 5] = ["memset", "memcpy", "memmove", "memcmp", "bcmp"];

/// Programs that may call a byte loop, because they run seldom.
const COLD: [&str; 0] = [];

/// Bytes of one BPF instruction.
const INSTRUCTION: usize = 8;

/// Checks the object at `path`.
pub(crate) fn run(path: &Path) -> Result<()> {
    eprintln!("==> kernel object");
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let faults = faults(&bytes)?;
    ensure!(faults.is_empty(), "kernel object:\n  {}", faults.join("\n  "));
    Ok(())
}

/// What is wrong with an object, one line each.
fn faults(bytes: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(bytes).context("the kernel object is no ELF file")?;
    let mut faults = Vec::new();
    if file.section_by_name(".BTF").is_none() {
        faults.push("it has no .BTF section: was it linked with --btf?".to_owned());
    }
    if !has_32_bit_operations(&file)? {
        faults.push("it has no 32-bit operations: was it built with target-cpu=v3?".to_owned());
    }
    for call in byte_loop_calls(&file)? {
        if !COLD.contains(&call.caller.as_str()) {
            faults
                .push(format!("{} calls {}, a byte-wise loop: write the fields one by one", call.caller, call.callee));
        }
    }
    Ok(faults)
}

/// A call of a byte loop.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    caller: String,
    callee: String,
}

/// All calls of byte loops, except those between byte loops.
///
/// The loops themselves are in every object that aya-ebpf is linked into; only calls cost.
fn byte_loop_calls(file: &object::File<'_>) -> Result<Vec<Call>> {
    let functions = Functions::of(file);
    let mut calls = Vec::new();
    for section in code_sections(file) {
        let code = section.data()?;
        let relocations: Vec<_> = section.relocations().collect();
        for offset in call_offsets(code) {
            let relocation = relocations.iter().find(|(at, _)| *at == offset as u64);
            let target = match relocation.map(|(_, relocation)| relocation.target()) {
                Some(RelocationTarget::Symbol(index)) => {
                    let symbol = file.symbol_by_index(index)?;
                    called_symbol(&symbol, code, offset)
                }
                _ => Some((section.index(), after(code, offset, offset + INSTRUCTION))),
            };
            let Some(callee) = target.and_then(|(index, at)| functions.at(index, at)) else {
                continue;
            };
            let caller = functions.at(section.index(), offset as u64);
            let caller = caller.unwrap_or("a nameless function");
            if BYTE_LOOPS.contains(&callee) && !BYTE_LOOPS.contains(&caller) {
                calls.push(Call { caller: caller.to_owned(), callee: callee.to_owned() });
            }
        }
    }
    Ok(calls)
}

/// Where a relocated call goes: to the symbol, or to an instruction of the section it names.
fn called_symbol<'a>(symbol: &impl ObjectSymbol<'a>, code: &[u8], offset: usize) -> Option<(SectionIndex, u64)> {
    let index = symbol.section_index()?;
    let at = match symbol.kind() {
        SymbolKind::Section => after(code, offset, INSTRUCTION),
        _ => symbol.address(),
    };
    Some((index, at))
}

/// The offset that a call's operand, counted in instructions from `base`, names.
fn after(code: &[u8], offset: usize, base: usize) -> u64 {
    let operand =
        code.get(offset + 4..offset + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_le_bytes);
    (base as u64).wrapping_add_signed(i64::from(operand) * INSTRUCTION as i64)
}

/// Offsets of calls to other functions of the object.
fn call_offsets(code: &[u8]) -> impl Iterator<Item = usize> {
    const CALL: u8 = 0x85;
    const TO_FUNCTION: u8 = 1;
    instructions(code).filter(|(_, word)| word[0] == CALL && word[1] >> 4 == TO_FUNCTION).map(|(offset, _)| offset)
}

/// Whether any instruction needs version 3 of the instruction set: 32-bit arithmetic other than
/// a byte swap, or a 32-bit jump.
fn has_32_bit_operations(file: &object::File<'_>) -> Result<bool> {
    const ALU32: u8 = 0x04;
    const JMP32: u8 = 0x06;
    const SWAP: u8 = 0xd0;
    let is_32_bit = |opcode: u8| match opcode & 0x07 {
        ALU32 => opcode & 0xf0 != SWAP,
        JMP32 => true,
        _ => false,
    };
    for section in code_sections(file) {
        if instructions(section.data()?).any(|(_, word)| is_32_bit(word[0])) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The instructions of `code` with their offsets.
fn instructions(code: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    code.chunks_exact(INSTRUCTION).enumerate().map(|(index, word)| (index * INSTRUCTION, word))
}

fn code_sections<'data, 'file>(
    file: &'file object::File<'data>,
) -> impl Iterator<Item = object::Section<'data, 'file>> {
    file.sections().filter(|section| section.kind() == SectionKind::Text)
}

/// The functions of an object by section and address.
#[derive(Debug)]
struct Functions<'data>(Vec<(SectionIndex, std::ops::Range<u64>, &'data str)>);

impl<'data> Functions<'data> {
    fn of(file: &object::File<'data>) -> Self {
        let functions = file.symbols().filter(|s| s.kind() == SymbolKind::Text);
        Self(
            functions
                .filter_map(|symbol| {
                    let range = symbol.address()..symbol.address() + symbol.size();
                    Some((symbol.section_index()?, range, symbol.name().ok()?))
                })
                .collect(),
        )
    }

    fn at(&self, section: SectionIndex, address: u64) -> Option<&'data str> {
        let mut functions = self.0.iter();
        functions.find(|(index, range, _)| *index == section && range.contains(&address)).map(|(_, _, name)| *name)
    }
}

/// Where the object lies, from the messages of a cargo run that brought it up to date.
pub(crate) fn path_in(messages: &str) -> Result<PathBuf> {
    let directory = messages.lines().find_map(out_dir_of_probe_user);
    let directory = directory.context("cargo does not tell where probe-user's script writes")?;
    Ok(directory.join("probe-ebpf"))
}

fn out_dir_of_probe_user(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| message.get(name)?.as_str();
    let ours = text("reason")? == "build-script-executed" && text("package_id")?.contains("/probe-user#");
    ours.then(|| text("out_dir").map(PathBuf::from))?
}

#[cfg(test)]
mod tests {
    use object::{Architecture, BinaryFormat, Endianness, RelocationFlags, SymbolFlags, SymbolScope, elf, write};

    use super::*;

    const MOVE_32: [u8; 8] = [0xb4, 0, 0, 0, 0, 0, 0, 0];
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    const CALL: [u8; 8] = [0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff];

    fn function(object: &mut write::Object<'_>, section: write::SectionId, name: &str, code: &[u8]) -> write::SymbolId {
        let symbol = object.add_symbol(write::Symbol {
            name: name.into(),
            value: 0,
            size: 0,
            kind: SymbolKind::Text,
            scope: SymbolScope::Linkage,
            weak: false,
            section: write::SymbolSection::Undefined,
            flags: SymbolFlags::None,
        });
        object.add_symbol_data(symbol, section, code, 8);
        symbol
    }

    /// An object with a program that calls `callee`, as the linker writes it.
    fn object_that_calls(callee: &str) -> Vec<u8> {
        let (format, order) = (BinaryFormat::Elf, Endianness::Little);
        let mut object = write::Object::new(format, Architecture::Bpf, order);
        let text = object.section_id(write::StandardSection::Text);
        let loops = function(&mut object, text, callee, &EXIT);
        let program = object.add_section(vec![], b"classifier".to_vec(), SectionKind::Text);
        let code = [MOVE_32, CALL, EXIT].concat();
        function(&mut object, program, "net_ingress", &code);
        let relocation = write::Relocation {
            offset: 8,
            symbol: loops,
            addend: 0,
            flags: RelocationFlags::Elf { r_type: elf::R_BPF_64_32 },
        };
        object.add_relocation(program, relocation).unwrap();
        let btf = object.add_section(vec![], b".BTF".to_vec(), SectionKind::Other);
        object.append_section_data(btf, &[0], 1);
        object.write().unwrap()
    }

    #[test]
    fn a_program_that_calls_a_byte_loop_is_named() {
        let found = faults(&object_that_calls("memset")).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("net_ingress calls memset"));
    }

    #[test]
    fn a_program_may_call_other_functions() {
        assert_eq!(faults(&object_that_calls("parse")).unwrap(), [""; 0]);
    }

    #[test]
    fn the_objects_place_is_read_from_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact"}
{"reason":"build-script-executed","package_id":"path+file:///w/other#0.1.0","out_dir":"/t/a"}
{"reason":"build-script-executed","package_id":"path+file:///w/probe-user#0.1.0","out_dir":"/t/b"}"#;
        assert_eq!(path_in(messages).unwrap(), Path::new("/t/b/probe-ebpf"));
        assert!(path_in("{}").is_err());
    }

    #[test]
    fn calls_of_other_functions_are_found_and_helper_calls_are_not() {
        let helper = [0x85, 0x00, 0, 0, 1, 0, 0, 0];
        let function = [0x85, 0x10, 0, 0, 2, 0, 0, 0];
        let code = [helper, function].concat();
        assert_eq!(call_offsets(&code).collect::<Vec<_>>(), [8]);
        // The operand counts instructions from the one after the call.
        assert_eq!(after(&code, 8, 16), 32);
    }
}
