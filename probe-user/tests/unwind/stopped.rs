//! Stacks of a running process, taken by stopping one thread at a time.

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// How much of a stack is copied.
const COPY: usize = 64 << 10;

/// A thread's registers and stack at one instant, as `RawStack` has them.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    pub(crate) copied: Vec<u8>,
    pub(crate) chain: Vec<u64>,
}

/// Threads of a process.
pub(crate) fn threads(tgid: u32) -> Vec<u32> {
    let Ok(folder) = fs::read_dir(format!("/proc/{tgid}/task")) else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Stops a thread wherever it is, takes its stack and lets it run on. `None` if it has ended.
pub(crate) fn take(tgid: u32, tid: u32) -> Option<Taken> {
    let thread = Pid::from_raw(i32::try_from(tid).ok()?);
    ptrace::seize(thread, Options::empty()).ok()?;
    ptrace::interrupt(thread).ok()?;
    waitpid(thread, Some(WaitPidFlag::__WALL)).ok()?;
    let [ip, sp, bp] = registers(thread)?;
    let mut copied = vec![0; COPY];
    let memory = File::open(format!("/proc/{tgid}/mem")).ok()?;
    let length = memory.read_at(&mut copied, sp).unwrap_or(0);
    copied.truncate(length);
    let chain = chain(&memory, ip, bp);
    ptrace::detach(thread, None).ok()?;
    Some(Taken { ip, sp, bp, copied, chain })
}

/// Instruction, stack and frame pointer.
fn registers(thread: Pid) -> Option<[u64; 3]> {
    let registers = ptrace::getregs(thread).ok()?;
    #[cfg(target_arch = "x86_64")]
    return Some([registers.rip, registers.rsp, registers.rbp]);
    #[cfg(target_arch = "aarch64")]
    return Some([registers.pc, registers.sp, registers.regs[29]]);
}

/// Return addresses by frame pointers, as the kernel follows them.
fn chain(memory: &File, ip: u64, mut frame: u64) -> Vec<u64> {
    const MOST: usize = 64;
    let mut chain = vec![ip];
    let mut words = [0; 16];
    while chain.len() < MOST && frame.is_multiple_of(8) && memory.read_exact_at(&mut words, frame).is_ok() {
        let [next, caller] = [&words[..8], &words[8..]].map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        chain.push(caller);
        frame = next;
    }
    chain
}
