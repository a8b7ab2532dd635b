//! Kernel programs of two instructions, to compare with and to stand behind what is measured.
//!
//! They are put into an object in memory, so that nothing of them is in the object that ships.

use anyhow::{Context as _, Result};
use aya::{
    Btf, Ebpf, TestRun as _, TestRunAttrs, TestRunOptions,
    programs::{
        BtfTracePoint, LinkOrder, SchedClassifier, TcAttachType, Xdp,
        tc::{self, NlOptions, SchedClassifierLinkId, TcAttachOptions},
    },
};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    write::{Object, Symbol, SymbolSection},
};

use crate::arrange::INTERFACE;

/// `TCX_NEXT`.
const NEXT: i32 = -1;
/// `TC_ACT_STOLEN`: the packet is used up here.
const STOLEN: i32 = 4;
/// `XDP_PASS`.
const PASS: i32 = 2;
/// Tracepoints on the way of every switch, on each of which whylag has one program.
const ON_SWITCHES: [&str; 2] = ["sched_switch", "sched_waking"];
/// The tracepoint on the way of every packet to its driver, likewise.
const ON_TRANSMIT: &str = "net_dev_start_xmit";
/// Frames that the kernel hands to the stack at once.
const BATCH: u32 = 64;

/// The programs, loaded.
#[derive(Debug)]
pub(crate) struct Programs(Ebpf);

impl Programs {
    pub(crate) fn load() -> Result<Self> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        add(&mut object, "classifier", "empty", NEXT);
        add(&mut object, "classifier/swallow", "swallow", STOLEN);
        add(&mut object, "xdp", "inject", PASS);
        let mut programs = Self(Ebpf::load(&object.write()?).context("cannot read the comparison object")?);
        programs.classifier("empty")?.load()?;
        programs.classifier("swallow")?.load()?;
        programs.injector()?.load()?;
        Ok(programs)
    }

    fn classifier(&mut self, name: &str) -> Result<&mut SchedClassifier> {
        Ok(self.0.program_mut(name).context("a program is missing")?.try_into()?)
    }

    fn injector(&mut self) -> Result<&mut Xdp> {
        Ok(self.0.program_mut("inject").context("a program is missing")?.try_into()?)
    }

    /// The program that does nothing.
    pub(crate) fn empty(&mut self) -> Result<&SchedClassifier> {
        Ok(self.classifier("empty")?)
    }

    /// Attaches the program that does nothing, where whylag attaches its own.
    pub(crate) fn attach_empty(&mut self) -> Result<SchedClassifierLinkId> {
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        Ok(self.classifier("empty")?.attach_with_options(INTERFACE, TcAttachType::Ingress, first)?)
    }

    pub(crate) fn detach_empty(&mut self, link: SchedClassifierLinkId) -> Result<()> {
        Ok(self.classifier("empty")?.detach(link)?)
    }

    /// Uses every packet up right behind the hook: what happens to it later is not measured.
    pub(crate) fn swallow(&mut self) -> Result<()> {
        tc::qdisc_add_clsact(INTERFACE)?;
        let behind = TcAttachOptions::Netlink(NlOptions::default());
        self.classifier("swallow")?.attach_with_options(INTERFACE, TcAttachType::Ingress, behind)?;
        Ok(())
    }

    /// Lets the interface receive a frame `times` times.
    pub(crate) fn inject(&mut self, frame: &[u8], times: u32) -> Result<()> {
        let attrs = TestRunAttrs::new().xdp_live_frames(BATCH);
        let options = TestRunOptions { data_in: Some(frame), repeat: times, attrs, ..TestRunOptions::new() };
        self.injector()?.test_run(options).context("the kernel injects no frames")?;
        Ok(())
    }
}

/// Attaches programs that do nothing to the tracepoints of switches, until the value is dropped.
pub(crate) fn empty_on_switches() -> Result<Ebpf> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    for tracepoint in ON_SWITCHES {
        add(&mut object, &format!("tp_btf/{tracepoint}"), tracepoint, 0);
    }
    let mut programs = Ebpf::load(&object.write()?).context("cannot read the comparison object")?;
    let types = Btf::from_sys_fs()?;
    for tracepoint in ON_SWITCHES {
        let program: &mut BtfTracePoint =
            programs.program_mut(tracepoint).context("a program is missing")?.try_into()?;
        program.load(tracepoint, &types)?;
        program.attach()?;
    }
    Ok(programs)
}

/// Attaches programs that do nothing where packets leave an interface, until the value is dropped.
pub(crate) fn empty_on_transmit(interface: &str) -> Result<Ebpf> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    add(&mut object, "classifier", "empty", NEXT);
    add(&mut object, &format!("tp_btf/{ON_TRANSMIT}"), ON_TRANSMIT, 0);
    let mut programs = Ebpf::load(&object.write()?).context("cannot read the comparison object")?;
    let program: &mut SchedClassifier = programs.program_mut("empty").context("a program is missing")?.try_into()?;
    program.load()?;
    program.attach_with_options(interface, TcAttachType::Egress, TcAttachOptions::TcxOrder(LinkOrder::first()))?;
    let program: &mut BtfTracePoint = programs.program_mut(ON_TRANSMIT).context("a program is missing")?.try_into()?;
    program.load(ON_TRANSMIT, &Btf::from_sys_fs()?)?;
    program.attach()?;
    Ok(programs)
}

/// How long the kernel says that one run of each of the programs takes, together.
pub(crate) fn account_ns(programs: &Ebpf) -> Result<f64> {
    let each = programs.programs().map(|(_, program)| {
        let account = program.info()?;
        Ok(account.run_time().as_secs_f64() * 1e9 / account.run_count().max(1) as f64)
    });
    each.sum()
}

/// Adds a program that returns `verdict`.
fn add(object: &mut Object<'_>, section: &str, name: &str, verdict: i32) {
    let section = object.add_section(Vec::new(), section.into(), SectionKind::Text);
    let code = code(verdict);
    let value = object.append_section_data(section, &code, 8);
    object.add_symbol(Symbol {
        name: name.into(),
        value,
        size: code.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
}

/// `r0 = verdict; exit`.
fn code(verdict: i32) -> [u8; 16] {
    let [a, b, c, d] = verdict.to_le_bytes();
    [0xb7, 0, 0, 0, a, b, c, d, 0x95, 0, 0, 0, 0, 0, 0, 0]
}
