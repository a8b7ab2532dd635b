//! Names of kernel addresses, from `/proc/kallsyms`.
//!
//! The file is streamed once into a sorted table: 12 bytes and the name for each function, names
//! in one string. The kernel tells no sizes, so a function reaches to the next symbol; data and
//! BPF programs are kept as nameless ends, so that no address beyond a function gets its name.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use thiserror::Error;

const PATH: &str = "/proc/kallsyms";

/// Kernel functions by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelSymbols {
    /// Start addresses, ascending.
    addresses: Vec<u64>,
    /// Where each name starts in `names`; it ends where the next one starts.
    offsets: Vec<u32>,
    names: String,
}

/// Why kernel addresses stay numbers.
#[derive(Debug, Error)]
pub enum SymbolsError {
    /// The file cannot be read.
    #[error("cannot read {PATH}; kernel stacks stay numbers")]
    Read(#[source] io::Error),
    /// Every address is shown as zero.
    #[error(
        "{PATH} shows every address as zero: run as root with CAP_SYSLOG, and `sysctl kernel.kptr_restrict=1` if it is 2"
    )]
    Restricted,
    /// The file is empty: a kernel without `CONFIG_KALLSYMS`.
    #[error("{PATH} names no function; the kernel was built without CONFIG_KALLSYMS")]
    Empty,
}

/// A line of the file.
#[derive(Debug, Clone, Copy)]
struct Row {
    address: u64,
    /// Global functions first, then weak, then local ones; `END` for what is no function.
    rank: u8,
    start: u32,
    len: u32,
}

const END: u8 = 3;

/// Address of the one kernel function of this name; `None` where it cannot be told.
#[must_use]
pub fn address_of(name: &str) -> Option<u64> {
    one_address(BufReader::with_capacity(64 * 1024, File::open(PATH).ok()?), name)
}

fn one_address(from: impl BufRead, name: &str) -> Option<u64> {
    let lines = from.lines().map_while(Result::ok);
    let address = |line: String| {
        let mut words = line.split(' ');
        let (address, kind, found) = (words.next()?, words.next()?, words.next()?);
        (found == name && matches!(kind, "t" | "T")).then(|| u64::from_str_radix(address, 16).ok())?
    };
    let mut found = lines.filter_map(address);
    let one = found.next().filter(|address| *address != 0)?;
    found.next().is_none().then_some(one)
}

impl KernelSymbols {
    /// Reads the running kernel's symbols, those of its modules included.
    ///
    /// # Errors
    /// The file cannot be read, hides its addresses, or names no function.
    pub fn load() -> Result<Self, SymbolsError> {
        Self::read(BufReader::with_capacity(64 * 1024, File::open(PATH).map_err(SymbolsError::Read)?))
    }

    fn read(mut from: impl BufRead) -> Result<Self, SymbolsError> {
        let (mut rows, mut names, mut line) = (Vec::new(), String::new(), String::new());
        while from.read_line(&mut line).map_err(SymbolsError::Read)? > 0 {
            rows.extend(parse(&line, &mut names));
            line.clear();
        }
        let mut functions = rows.iter().filter(|row| row.rank != END).peekable();
        if functions.peek().is_none() {
            return Err(SymbolsError::Empty);
        }
        if functions.all(|row| row.address == 0) {
            return Err(SymbolsError::Restricted);
        }
        Ok(Self::build(rows, &names))
    }

    /// Sorts, keeps the best name of each address, and drops ends that follow an end.
    fn build(mut rows: Vec<Row>, names: &str) -> Self {
        rows.sort_by_key(|row| (row.address, row.rank));
        rows.dedup_by_key(|row| row.address);
        rows.dedup_by(|row, before| row.rank == END && before.rank == END);
        let mut table = Self::default();
        table.addresses.reserve_exact(rows.len());
        table.offsets.reserve_exact(rows.len());
        for row in &rows {
            table.addresses.push(row.address);
            table.offsets.push(len_u32(&table.names));
            let end = row.start.saturating_add(row.len) as usize;
            table.names.push_str(names.get(row.start as usize..end).unwrap_or_default());
        }
        table.names.shrink_to_fit();
        table
    }

    /// Name of the function that holds an address, as in kallsyms: with suffixes such as
    /// `.isra.0`, without offset or module.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&str> {
        let index = self.addresses.partition_point(|start| *start <= address).checked_sub(1)?;
        let start = *self.offsets.get(index)? as usize;
        let end = self.offsets.get(index + 1).map_or(self.names.len(), |end| *end as usize);
        self.names.get(start..end).filter(|name| !name.is_empty())
    }

    /// Number of functions and ends in the table.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.addresses.len()
    }

    /// No symbols.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Memory that the table takes, bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.addresses.capacity() * size_of::<u64>()
            + self.offsets.capacity() * size_of::<u32>()
            + self.names.capacity()
    }
}

/// Takes a line `ffffffff81000000 T name [module]`; the name of a function goes to `names`.
fn parse(line: &str, names: &mut String) -> Option<Row> {
    let mut columns = line.split_ascii_whitespace();
    let address = u64::from_str_radix(columns.next()?, 16).ok()?;
    let kind = columns.next()?;
    let name = columns.next()?;
    let rank = match kind {
        _ if columns.next() == Some("[bpf]") => END,
        "T" => 0,
        "W" | "w" => 1,
        "t" => 2,
        _ => END,
    };
    let start = len_u32(names);
    if rank != END {
        names.push_str(name);
    }
    Some(Row { address, rank, start, len: len_u32(names) - start })
}

/// Names of a kernel are some megabytes.
fn len_u32(names: &str) -> u32 {
    u32::try_from(names.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
ffffffff81000000 t local_alias
ffffffff81000000 T _text
ffffffff81000100 t futex_do_wait
ffffffff81000200 D some_data
ffffffff81000300 d more_data
ffffffff81000400 T io_schedule
ffffffffc0a00100 t xfs_log_force\t[xfs]
ffffffffc0a00000 T xfs_init\t[xfs]
ffffffffc0b00000 t bpf_prog_6deef7357e7b4530_sched_switch\t[bpf]
";

    fn table(text: &str) -> Result<KernelSymbols, SymbolsError> {
        KernelSymbols::read(text.as_bytes())
    }

    #[test]
    fn a_function_is_found_by_name_if_there_is_one_and_its_address_is_shown() {
        let address = |name| one_address(TABLE.as_bytes(), name);
        assert_eq!(address("io_schedule"), Some(0xffff_ffff_8100_0400));
        assert_eq!((address("some_data"), address("no_such")), (None, None));
        let twice = format!("{TABLE}ffffffff81000500 t io_schedule\n0000000000000000 t hidden\n");
        assert_eq!(
            (one_address(twice.as_bytes(), "io_schedule"), one_address(twice.as_bytes(), "hidden")),
            (None, None)
        );
    }

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let symbols = table(TABLE).expect("a table");
        assert_eq!(symbols.name(0xffff_ffff_8100_0100), Some("futex_do_wait"));
        assert_eq!(symbols.name(0xffff_ffff_8100_01ff), Some("futex_do_wait"));
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), Some("_text"), "the global name wins");
        assert_eq!(symbols.name(0xffff_ffff_8100_0400), Some("io_schedule"));
    }

    #[test]
    fn modules_count_and_data_and_bpf_programs_do_not() {
        let symbols = table(TABLE).expect("a table");
        assert_eq!(symbols.name(0xffff_ffff_c0a0_0010), Some("xfs_init"), "modules are not sorted in the file");
        assert_eq!(symbols.name(0xffff_ffff_c0a0_0110), Some("xfs_log_force"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0250), None);
        assert_eq!(symbols.name(0xffff_ffff_8100_0350), None);
        assert_eq!(symbols.name(0xffff_ffff_c0b0_0010), None);
        assert_eq!(symbols.name(0x1000), None);
        assert_eq!(symbols.len(), 7, "the second of two ends is dropped");
    }

    #[test]
    fn hidden_and_missing_tables_say_why() {
        let hidden = "0000000000000000 T _text\n0000000000000000 t futex_do_wait\n";
        assert!(matches!(table(hidden), Err(SymbolsError::Restricted)));
        assert!(matches!(table(""), Err(SymbolsError::Empty)));
        assert!(matches!(table("nonsense\n"), Err(SymbolsError::Empty)));
    }

    #[test]
    fn the_running_kernel_fits_the_memory_budget() {
        let symbols = match KernelSymbols::load() {
            Ok(symbols) => symbols,
            Err(error) => return println!("skipped: {error}"),
        };
        println!("{} symbols, {} bytes", symbols.len(), symbols.size_bytes());
        assert!(symbols.size_bytes() < 12 * 1024 * 1024);
        let index = symbols.len() / 2;
        assert!(
            symbols.name(symbols.addresses[index]).is_some() || symbols.name(symbols.addresses[index - 1]).is_some()
        );
    }
}
