//! The kernel object: its globals, its rings, its programs.

use aya::{
    Btf, Ebpf, EbpfLoader, RawTracePointRunOptions, TestRun, TestRunOptions, include_bytes_aligned,
    maps::{ArrayOfMaps, Map, MapData, MapError, ProgramArray, RingBuf},
    programs::{BtfTracePoint, Program, ProgramError, RawTracePoint, SchedClassifier, TracePoint},
    sys::SyscallError,
    util::nr_cpus,
};
use probe_packet::Prefilter;
use probe_wire::{MAX_CPUS, MAX_RULES, Offsets, Settings, UNKNOWN_OFFSET};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zerocopy::IntoBytes;

use super::{LoadError, Request, stacks};
use crate::{
    hooks::{Attach, Choice},
    source::ring::Rings,
    symbols,
};

/// Built by `build.rs` from `probe-ebpf`.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe-ebpf"));

/// `PID_MAX_LIMIT`, and the bits of the programs' map.
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/threads.h#L34>
const PID_MAX: u32 = 4 << 20;
/// Room for a program that would make a frame longer.
const SPARE_BYTES: usize = 256;
/// `BPF_MAP_TYPE_RINGBUF`.
const RINGBUF: u32 = 27;
/// Lets go what blk-throttle held back, on a workqueue.
/// <https://github.com/torvalds/linux/blob/v6.12/block/blk-throttle.c#L1274>
const THROTTLE_WORK: &str = "blk_throtl_dispatch_work_fn";
pub(super) const RINGS: &str = "RINGS";
pub(super) const STACK_RINGS: &str = "STACK_RINGS";

/// Makes the maps and leaves the programs ready to load.
pub(super) fn load(request: &Request, offsets: &Offsets, types: &Btf) -> Result<Ebpf, LoadError> {
    let settings = settings(request, offsets)?;
    let prefilter = Prefilter::new(&settings.rules, settings.rule_count);
    allow_locked_memory();
    let level = u8::from(request.diagnostics) * u8::MAX;
    let mut loader = EbpfLoader::new();
    let cpus = u32::try_from(nr_cpus().unwrap_or(MAX_CPUS).min(MAX_CPUS)).unwrap_or(1);
    loader.map_max_entries(stacks::SAMPLES, if settings.user_stacks == 0 { 1 } else { cpus });
    if settings.user_stacks == 0 {
        for name in stacks::LARGE_MAPS {
            loader.map_max_entries(name, 1);
        }
    }
    loader
        .btf(Some(types))
        .override_global("SETTINGS", settings.as_bytes(), true)
        .override_global("PREFILTER", prefilter.as_bytes(), true)
        .override_global("AYA_LOG_LEVEL", &level, false)
        .load(OBJECT)
        .map_err(|error| LoadError::Object(Box::new(error)))
}

fn settings(request: &Request, offsets: &Offsets) -> Result<Settings, LoadError> {
    let count = request.rules.len();
    let mut settings = Settings {
        offsets: *offsets,
        softirq_min_ns: request.softirq_min_ns,
        stacks: u32::from(request.stacks),
        throttle_work: symbols::address_of(THROTTLE_WORK).unwrap_or_default(),
        user_stacks: u32::from(request.user_stacks.is_some() && tells_of_user_mode(offsets)),
        wait_min_ns: request.user_stacks.map_or(0, |stacks| stacks.wait_min.0),
        waits_per_stretch: stacks::waits_per_stretch(nr_cpus().unwrap_or(MAX_CPUS)).into(),
        senders: u32::from(request.senders),
        ..Settings::default()
    };
    let room = settings.rules.get_mut(..count);
    let room = room.ok_or(LoadError::TooManyRules { count, most: MAX_RULES })?;
    room.copy_from_slice(&request.rules);
    settings.rule_count = u32::try_from(count).unwrap_or_default();
    Ok(settings)
}

/// Whether it is known where the kernel keeps what unwinding begins with.
fn tells_of_user_mode(offsets: &Offsets) -> bool {
    let Offsets { task_mm, task_flags, pt_regs_ip, pt_regs_sp, pt_regs_bp, .. } = *offsets;
    ![task_mm, task_flags, pt_regs_ip, pt_regs_sp, pt_regs_bp].contains(&UNKNOWN_OFFSET)
}

/// Kernels before 5.11 count maps against the locked memory of the user. Best effort: where it
/// matters and fails, the maps fail with a better message.
fn allow_locked_memory() {
    let limit = getrlimit(Resource::Memlock);
    if limit.current.is_some() {
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    }
}

/// Makes a ring for every CPU that can come online.
pub(super) fn make_rings(ebpf: &mut Ebpf, name: &'static str, bytes: u32) -> Result<Rings, LoadError> {
    let cpus = nr_cpus().map_err(|(path, source)| LoadError::Cpus { path, source })?;
    let failed = |source| map_error(name, source);
    let map = ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
    let mut outer = ArrayOfMaps::<_, MapData>::try_from(map).map_err(failed)?;
    let mut rings = Vec::new();
    for (cpu, _) in (0..).zip(0..cpus.min(MAX_CPUS)) {
        let broken = |source| LoadError::Ring { cpu, bytes, source: Box::new(source) };
        let definition = aya_obj::Map::new_from_params(RINGBUF, 0, 0, bytes, 0);
        let ring = MapData::create(definition, "RING", None).map_err(broken)?;
        outer.set(cpu, &ring, 0).map_err(failed)?;
        rings.push(RingBuf::try_from(Map::RingBuf(ring)).map_err(broken)?);
    }
    Rings::new(rings, bytes as usize).map_err(LoadError::Wait)
}

/// Loads a tracepoint program.
pub(super) fn load_tracepoint(
    ebpf: &mut Ebpf,
    choice: &Choice,
    tracepoint: &str,
    types: &Btf,
) -> Result<(), ProgramError> {
    let program = ebpf.program_mut(choice.program).ok_or(ProgramError::NotLoaded)?;
    let program: &mut BtfTracePoint = program.try_into()?;
    program.load(tracepoint, types)
}

/// Loads a program for a tracepoint that is known by its format.
pub(super) fn load_formatted(ebpf: &mut Ebpf, choice: &Choice) -> Result<(), ProgramError> {
    let program = ebpf.program_mut(choice.program).ok_or(ProgramError::NotLoaded)?;
    let program: &mut TracePoint = program.try_into()?;
    program.load()
}

/// Attaches a tracepoint program that is loaded.
pub(super) fn attach_tracepoint(ebpf: &mut Ebpf, choice: &Choice) -> Result<(), ProgramError> {
    if let Attach::TailCall { map, .. } = choice.attach {
        return let_call(ebpf, choice.program, map);
    }
    let program = ebpf.program_mut(choice.program).ok_or(ProgramError::NotLoaded)?;
    match (program, choice.attach) {
        (Program::TracePoint(program), Attach::Tracepoint { category, tracepoint, .. }) => {
            program.attach(category, tracepoint).map(drop)
        }
        (program, _) => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.attach().map(drop)
        }
    }
}

/// Lets another program call this one through a map, which the kernel empties when the loader is gone.
fn let_call(ebpf: &mut Ebpf, program: &str, map: &str) -> Result<(), ProgramError> {
    let callee = ebpf.program(program).ok_or(ProgramError::NotLoaded)?.fd()?.try_clone();
    let callee = callee.map_err(|io_error| SyscallError { call: "dup", io_error })?;
    let map = ebpf.map_mut(map).ok_or(ProgramError::NotLoaded)?;
    Ok(ProgramArray::try_from(map)?.set(0, &callee, 0)?)
}

/// Loads a packet program, once.
pub(super) fn load_classifier(ebpf: &mut Ebpf, program: &str) -> Result<(), ProgramError> {
    let program = ebpf.program_mut(program).ok_or(ProgramError::NotLoaded)?;
    let program: &mut SchedClassifier = program.try_into()?;
    match program.load() {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        other => other,
    }
}

/// Tells the programs about a process.
pub(super) fn tell(ebpf: &mut Ebpf, program: &'static str, tgid: u32) -> Result<(), LoadError> {
    if tgid == 0 || tgid >= PID_MAX {
        return Err(LoadError::NoSuchProcess { tgid });
    }
    run_once(ebpf, program, tgid.into()).map_err(|source| run_error(program, source))
}

/// Runs a program of the loader with its argument.
pub(super) fn run_once(ebpf: &mut Ebpf, program: &str, argument: u64) -> Result<(), ProgramError> {
    let program = ebpf.program_mut(program).ok_or(ProgramError::NotLoaded)?;
    let program: &mut RawTracePoint = program.try_into()?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(error) => return Err(error),
    }
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = argument;
    program.test_run(options).map(drop)
}

/// What a dry run of a packet program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// The program's answer; -1 passes the packet on to the next program.
    pub verdict: i32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Mean duration of a run, nanoseconds; the kernel measures whole ones.
    pub run_ns: u64,
}

pub(super) fn dry_run(ebpf: &mut Ebpf, program: &str, frame: &[u8], repeat: u32) -> Result<DryRun, ProgramError> {
    load_classifier(ebpf, program)?;
    let program = ebpf.program(program).ok_or(ProgramError::NotLoaded)?;
    let program: &SchedClassifier = program.try_into()?;
    let mut after = vec![0; frame.len() + SPARE_BYTES];
    let mut options = TestRunOptions::new();
    options.data_in = Some(frame);
    options.data_out = Some(&mut after);
    options.repeat = repeat;
    let result = program.test_run(options)?;
    after.truncate(result.data_size_out as usize);
    Ok(DryRun {
        verdict: result.return_value.cast_signed(),
        frame: after,
        run_ns: u64::try_from(result.duration.as_nanos()).unwrap_or(u64::MAX),
    })
}

pub(super) fn map_error(name: &'static str, source: MapError) -> LoadError {
    LoadError::Map { name, source: Box::new(source) }
}

pub(super) fn run_error(program: &'static str, source: ProgramError) -> LoadError {
    LoadError::Run { program, source: Box::new(source) }
}
