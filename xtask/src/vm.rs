//! `cargo xtask vm`: whylag on other kernels, each in a virtual machine of its own.
//!
//! In: the table [`KERNELS`], Debian's package sources, this machine's builds of whylag and the
//! lab. Out: the marks of lab cases on each kernel. QEMU and the kernels are unpacked in the
//! user's cache; nothing is installed. The processor is emulated in software, so this works
//! wherever the project builds, and everything in the machine is some ten times slower.

mod binaries;
mod boot;
mod marks;
mod needs;
mod turn;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use virtual_machine::{Contents, Guests, Image, Kernel, Qemu, Release, Store, permitted};

use crate::{packages, setup, workspace};
use binaries::Binaries;
use marks::Marks;
use needs::Needs;

/// A kernel to run on.
#[derive(Debug)]
pub(crate) struct Row {
    /// Which.
    pub(crate) release: Release,
    /// Cases that this kernel cannot resolve. A wrong verdict fails anyway.
    pub(crate) unresolved: &'static [&'static str],
}

/// The kernels.
pub(crate) const KERNELS: &[Row] = &[
    // What a thread does with its sockets is told by tracepoints that came with 6.3.
    Row { release: Release::OLDEST, unresolved: &["server-silent", "dependency-late"] },
    Row { release: Release::MIDDLE, unresolved: &[] },
    Row { release: Release::NEWEST, unresolved: &[] },
];

/// The cases that are run if none is named.
const SMOKE: &[&str] = &[
    "healthy",
    "handler-sleeps",
    "handler-computes",
    "lock-holder-computes",
    "cpu-quota",
    "shaper",
    "tcp-handler-computes",
];

/// By how much the times of a case are longer than on a machine that is not emulated.
const SLOWDOWN: u64 = 6;

/// Programs of this machine that the lab calls, or that guests of its own call.
const COMMANDS: &[&str] = &["ip", "tc", "chrt", "true", "ln"];
/// The modules that worlds and faults are made of.
const MODULES: &[&str] = &["veth", "tun", "sch_tbf", "sch_ingress", "cls_bpf"];

/// Debian packages whose programs the image takes along or is made with.
const PACKAGES: &[&str] = &["iproute2", "xz-utils"];

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the kernels, and which versions are in the cache
    List,
    /// Fetches QEMU and the kernels, where they are missing
    Fetch,
    /// Fetches what is missing, and runs lab cases on each kernel
    Run(RunArgs),
    /// Runs the few cases on two kernels that `cargo xtask test` runs
    Smoke,
}

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Kernels; see `cargo xtask vm list`.
    #[arg(required_unless_present = "all")]
    kernels: Vec<String>,
    /// All kernels of the list.
    #[arg(long, conflicts_with = "kernels")]
    all: bool,
    /// A case of the lab instead of the usual ones; can be given several times.
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// All cases that need kernel modules or a machine of the lab's own, also.
    #[arg(long)]
    special: bool,
    /// All cases with guests by KVM, also.
    #[arg(long)]
    kvm: bool,
    /// How often each case is run.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// By how much the times of a case are longer, since the machine is emulated.
    #[arg(long, value_name = "FACTOR", default_value_t = SLOWDOWN)]
    slowdown: u64,
    /// Look for newer kernels than those in the cache.
    #[arg(long)]
    update: bool,
    /// Run this command instead of the cases, such as `--exec 'whylag attach …'`, where these could
    /// run.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
}

/// Does it.
pub(crate) fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::List => list(),
        Verb::Fetch => fetch(&KERNELS.iter().collect::<Vec<_>>()).map(drop),
        Verb::Run(args) => run_all(args),
        Verb::Smoke => smoke(),
    }
}

fn list() -> Result<()> {
    let store = Store::open()?;
    for row in KERNELS {
        let cached = store.cached(row.release).map_or_else(|| "not fetched yet".to_owned(), |kernel| kernel.release);
        println!("{:8} {:18} {cached}", row.release.name, row.release.suite);
    }
    Ok(())
}

fn run_all(args: &RunArgs) -> Result<()> {
    let rows = chosen(args)?;
    let binaries = build()?;
    if args.update {
        let store = Store::open()?;
        rows.iter().try_for_each(|row| store.forget(row.release))?;
    }
    let store = fetch(&rows)?;
    let cases = cases(args, &binaries)?;
    let needs = Needs::of(&binaries.lab(), &cases)?;
    let job = match &args.exec {
        Some(command) => vec![command.split_whitespace().map(str::to_owned).collect()],
        None => job(&cases, args.runs, args.slowdown),
    };
    let mut failed = Vec::new();
    for row in rows {
        match try_kernel(&store, row, &binaries, &needs, &job) {
            Ok(marks) if args.exec.is_some() || marks.are_good(row) => {}
            Ok(_) => failed.push(row.release.name),
            Err(error) => {
                eprintln!("{}: {error:#}", row.release.name);
                failed.push(row.release.name);
            }
        }
    }
    ensure!(failed.is_empty(), "not right on: {}", failed.join(", "));
    Ok(())
}

/// The build that the tests use too; most of what is slow in the machine is not whylag.
fn build() -> Result<Binaries> {
    setup::run()?;
    workspace::run("build", workspace::cargo().args(["build", "-p", "probe-user", "-p", "probe-tests"]))?;
    Ok(Binaries::of_build("debug"))
}

/// Commands for the machine: what it can do, then the cases.
fn job(cases: &[String], runs: usize, slowdown: u64) -> Vec<Vec<String>> {
    let mut run = ["lab", "run", "--json"].map(str::to_owned).to_vec();
    run.push(format!("--slowdown={slowdown}"));
    run.push(format!("--runs={runs}"));
    run.extend_from_slice(cases);
    vec![vec!["whylag".into(), "doctor".into()], run]
}

/// The cases that are asked for, else the usual ones.
fn cases(args: &RunArgs, binaries: &Binaries) -> Result<Vec<String>> {
    let mut cases = args.case.clone();
    for (kind, _) in [("--special", args.special), ("--kvm", args.kvm)].into_iter().filter(|(_, wanted)| *wanted) {
        cases.extend(needs::cases_of(&binaries.lab(), kind)?);
    }
    if cases.is_empty() {
        cases.extend(SMOKE.iter().map(|case| (*case).to_owned()));
    }
    Ok(cases)
}

fn chosen(args: &RunArgs) -> Result<Vec<&'static Row>> {
    if args.all {
        return Ok(KERNELS.iter().collect());
    }
    let find = |name: &String| {
        let row = KERNELS.iter().find(|row| row.release.name == name);
        row.with_context(|| format!("no kernel is called {name}; see cargo xtask vm list"))
    };
    args.kernels.iter().map(find).collect()
}

/// Boots a kernel, runs the job, and marks what came of it.
fn try_kernel(store: &Store, row: &Row, binaries: &Binaries, needs: &Needs, job: &[Vec<String>]) -> Result<Marks> {
    let qemu = store.qemu()?;
    let kernel = store.kernel(row.release)?;
    eprintln!("==> {} ({})", row.release.name, kernel.release);
    let _turn = turn::take()?;
    let image = image(store, &qemu, &kernel, binaries, needs, job)?;
    let started = Instant::now();
    let kind = if needs.guests.is_some() { boot::HOST } else { boot::PLAIN };
    let marks = boot::run(&binaries.lab(), &qemu, &kernel, &image, kind)?;
    eprintln!("    {} in {:.0?}", row.release.name, started.elapsed());
    Ok(marks)
}

/// What the machine starts with.
fn image(
    store: &Store,
    qemu: &Qemu,
    kernel: &Kernel,
    binaries: &Binaries,
    needs: &Needs,
    job: &[Vec<String>],
) -> Result<Image> {
    let programs = binaries.all();
    let modules: Vec<&str> = MODULES.iter().copied().chain(needs.modules.iter().map(String::as_str)).collect();
    let guests = needs.guests.as_ref();
    let guest_kernel = guests.map(|guests| store.kernel(guests.release)).transpose()?;
    let guest_modules: Vec<&str> = guests.into_iter().flat_map(|guests| &guests.modules).map(String::as_str).collect();
    let guests = guest_kernel.as_ref().map(|kernel| Guests { qemu, kernel, modules: &guest_modules });
    let (packages, commands) = (needs.packages.as_slice(), COMMANDS);
    let contents = Contents { programs: &programs, commands, packages, modules: &modules, job, guests };
    Image::build(store.directory().join(format!("image-{}", kernel.release)), kernel, &contents)
}

/// Kernels and cases of the short smoke that `cargo xtask test` runs: the oldest and the newest
/// kernel, threads and packets, a quiet host that must be blamed for nothing, and what the machine's
/// own kernel may lack or must not be told.
const SHORT: (&[&str], &[&str]) = (&["6.1", "newest"], &["healthy", "lock-holder-computes", "bonded-shaper"]);

/// Fetches what the short smoke and the guests of the lab need, before any test is run.
pub(crate) fn prepare() {
    if let Err(reason) = permitted().and_then(|()| fetch(&short())) {
        eprintln!("==> virtual machines: cases with guests and other kernels will be skipped: {reason:#}");
    }
}

/// The kernels of the short smoke; the guests of the lab have one of them.
fn short() -> Vec<&'static Row> {
    let (names, _) = SHORT;
    KERNELS.iter().filter(|row| names.contains(&row.release.name)).collect()
}

/// The short smoke. What it needs and cannot get is a reason to skip it,
/// which is printed.
pub(crate) fn smoke() -> Result<()> {
    let (_, cases) = SHORT;
    let rows = short();
    let Some(store) = or_skip(permitted().and_then(|()| fetch(&rows))) else { return Ok(()) };
    let binaries = build()?;
    let cases: Vec<String> = cases.iter().map(|case| (*case).to_owned()).collect();
    let Some(needs) = or_skip(Needs::of(&binaries.lab(), &cases)) else { return Ok(()) };
    let job = job(&cases, 1, SLOWDOWN);
    for row in rows {
        let marks = try_kernel(&store, row, &binaries, &needs, &job)?;
        ensure!(marks.are_good(row), "whylag is not right on kernel {}", row.release.name);
    }
    Ok(())
}

/// What there is, or says why the smoke is skipped.
fn or_skip<T>(found: Result<T>) -> Option<T> {
    found.inspect_err(|reason| eprintln!("==> other kernels: skipped: {reason:#}")).ok()
}

/// Makes QEMU and the kernels ready, or says why they cannot be.
fn fetch(rows: &[&Row]) -> Result<Store> {
    packages::ensure(PACKAGES)?;
    let store = Store::open()?;
    store.qemu().context("no QEMU")?;
    for row in rows {
        store.kernel(row.release).with_context(|| format!("no kernel {}", row.release.name))?;
    }
    Ok(store)
}
