//! The sandbox from within: this test program starts itself again, once for each attempt, and
//! looks how that ends.

use super::{Sandbox, enter};
use caps::CapSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// Names the attempt to a started copy.
const ATTEMPT: &str = "WHYLAG_TEST_ATTEMPT";
/// Says to it that whoever started it was root.
const WAS_ROOT: &str = "WHYLAG_TEST_ROOT";
/// Before the name of an attempt: from within the sandbox of the child that fetches.
const FETCHES: &str = "fetches: ";
/// The end of a copy that may do what it attempted.
const DONE: i32 = 77;

/// What a copy does in the sandbox. All calls are the kernel's own, so that no library stands
/// between.
#[expect(unsafe_code, reason = "no library may refuse before the kernel does")]
fn attempt(name: &str) {
    let path = c"/etc/passwd".as_ptr();
    // SAFETY: numbers, and strings that live for the program's time; what they do, if they do it,
    // harms a process at most that was made for it.
    let result = unsafe {
        match name {
            "nothing" => 0,
            "open" => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY),
            "stat" => libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, 0, 0),
            "create" => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/tmp/x".as_ptr(), libc::O_CREAT, 0),
            "local socket" => libc::syscall(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0),
            "thread" => libc::syscall(libc::SYS_clone3, 0, 0),
            "socket" => libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
            "ptrace" => libc::syscall(libc::SYS_ptrace, libc::PTRACE_SEIZE, libc::getppid(), 0, 0),
            "read memory" => libc::syscall(libc::SYS_process_vm_readv, libc::getppid(), 0, 0, 0, 0, 0),
            "fork" => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
            "execute" => libc::syscall(libc::SYS_execve, path, 0, 0),
            "kill" => libc::syscall(libc::SYS_kill, libc::getppid(), 0),
            "write" => libc::syscall(libc::SYS_write, 1, path, 1),
            "ioctl" => libc::syscall(libc::SYS_ioctl, 0, libc::FIONREAD, 0),
            "bpf" => libc::syscall(libc::SYS_bpf, 0, 0, 0),
            "executable memory" => libc::syscall(
                libc::SYS_mmap,
                0,
                4096,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            ),
            "mapped file" => libc::syscall(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_PRIVATE, 0, 0),
            other => panic!("no attempt {other}"),
        }
    };
    let refusal = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
    // SAFETY: ends the process, which holds nothing.
    unsafe { libc::_exit(if result >= 0 { DONE } else { refusal }) }
}

/// Runs in a started copy only.
#[test]
fn inside() {
    let Ok(name) = std::env::var(ATTEMPT) else { return };
    match name.as_str() {
        "landlock" => {
            super::forbid_names().unwrap();
            let error = std::fs::read("/etc/passwd").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        }
        "privileges" => {
            super::drop_privileges().unwrap();
            assert!(!rustix::process::geteuid().is_root());
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient] {
                assert!(caps::read(None, set).unwrap().is_empty(), "{set:?}");
            }
            let bounding = caps::read(None, CapSet::Bounding).unwrap();
            assert!(bounding.is_empty() || std::env::var(WAS_ROOT).is_err(), "{bounding:?}");
            assert!(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_err());
            assert!(rustix::thread::no_new_privs().unwrap());
        }
        name => match name.strip_prefix(FETCHES) {
            Some(name) => {
                super::network::enter().unwrap();
                attempt(name);
            }
            None => {
                enter();
                attempt(name);
            }
        },
    }
}

fn copy(name: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "symbolize::sandbox::tests::inside", "--nocapture"]).env(ATTEMPT, name);
    if rustix::process::geteuid().is_root() {
        command.env(WAS_ROOT, "1");
    }
    command.output().unwrap().status
}

#[test]
fn a_child_can_do_nothing_but_read_and_answer() {
    assert_eq!(copy("nothing").code(), Some(DONE), "it lives in the sandbox");
    let attempts = [
        "open",
        "stat",
        "socket",
        "ptrace",
        "read memory",
        "fork",
        "execute",
        "kill",
        "write",
        "ioctl",
        "bpf",
        "executable memory",
        "mapped file",
    ];
    for attempt in attempts {
        assert_eq!(copy(attempt).signal(), Some(libc::SIGSYS), "{attempt}");
    }
}

#[test]
fn a_child_that_fetches_can_connect_and_start_or_make_nothing() {
    for attempt in ["nothing", "socket"] {
        assert_eq!(copy(&format!("{FETCHES}{attempt}")).code(), Some(DONE), "{attempt}");
    }
    let attempts = [
        "create",
        "local socket",
        "thread",
        "ptrace",
        "read memory",
        "fork",
        "execute",
        "kill",
        "bpf",
        "executable memory",
    ];
    for attempt in attempts {
        assert_eq!(copy(&format!("{FETCHES}{attempt}")).code(), Some(libc::EPERM), "{attempt}");
    }
}

#[test]
fn without_seccomp_landlock_forbids_files() {
    if landlock_is_missing() {
        return println!("skipped: this kernel has no Landlock");
    }
    assert!(copy("landlock").success());
}

fn landlock_is_missing() -> bool {
    !std::fs::read_to_string("/proc/kallsyms").is_ok_and(|symbols| symbols.contains("landlock_restrict_self"))
}

#[test]
fn a_child_has_no_privilege_and_can_get_none() {
    assert!(copy("privileges").success());
}

#[test]
fn what_is_missing_is_told_with_its_reason() {
    let whole = Sandbox::default();
    assert!(whole.is_complete() && whole.missing().next().is_none());
    let part = Sandbox { landlock: Some("too old".to_owned()), ..whole };
    assert_eq!(part.missing().collect::<Vec<_>>(), [("Landlock", "too old")]);
    assert!(!part.is_complete());
}
