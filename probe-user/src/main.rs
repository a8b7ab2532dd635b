//! The `whylag` command.

use std::process::ExitCode;

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output was closed when the process began. The standard library then opens
/// `/dev/null` in its place before `main`, and all results would go nowhere unnoticed.
static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_output() {
    #[expect(unsafe_code, reason = "std's own handles are not for use before main")]
    // SAFETY: the call takes numbers only and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

#[used]
#[expect(unsafe_code, reason = "nothing else runs before the standard library opens /dev/null")]
// SAFETY: the C runtime calls every function in this section once, before `main` and with no
// other thread around; this one makes a system call and stores a flag.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_output;

fn main() -> ExitCode {
    if let Some(role) = probe_user::symbolize::role() {
        return probe_user::symbolize::serve(role);
    }
    probe_user::cli::main(CLOSED.load(Ordering::Relaxed))
}
