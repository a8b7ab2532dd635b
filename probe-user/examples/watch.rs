//! Attaches to interfaces and prints every event, to check by eye what the kernel says.
//!
//! `watch [--if NAME]… [--netns PATH=NAME]… [--pid N]… [--icmp | --udp PORT] [--seconds N]
//! [--exclude HOOK]… [--avoid WAY]…`; needs root. `--udp` expects eight bytes of nonce at the start of the payload.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use probe_user::load::{Attached, Attachment, Netns, Outcome, Request, load};
use probe_wire::{
    AcceptFullBody, BackendRxBody, BlockRequestBody, DirtiedBody, DropBody, EventHeader, EventKind, FileWaitBody,
    FutexWaitBody, GuestExitsBody, LockSpinBody, NeighbourBody, OtherCallBody, OtherPeerBody, PacketBody, Pattern,
    QdiscBody, RanBody, ReclaimBody, Rule, SendHeldBody, SockCallBody, SockEnqueueBody, SoftirqBody, SoftirqWaitBody,
    SwitchInBody, SwitchOutBody, TaskExitBody, TaskForkBody, WakingBody, XmitBody,
};
use zerocopy::FromBytes;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watch: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (request, duration) = arguments()?;
    let begun = Instant::now();
    let mut attached = load(&request)?;
    println!("attached in {:?}", begun.elapsed());
    tell_hooks(&attached);
    watch(&mut attached, duration)?;
    tell_losses(&attached)?;
    let begun = Instant::now();
    drop(attached);
    println!("detached in {:?}", begun.elapsed());
    Ok(())
}

fn arguments() -> Result<(Request, Duration)> {
    let mut request = Request::default();
    let mut duration = Duration::from_secs(5);
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        if option == "--icmp" {
            request.rules.push(icmp_rule());
            continue;
        }
        let value = arguments.next().with_context(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--if" => request.interfaces.push(attachment(None, value)?),
            "--netns" => {
                let (path, name) = value.split_once('=').context("--netns PATH=NAME")?;
                let netns = Netns::Path(PathBuf::from(path));
                request.interfaces.push(attachment(Some(netns), name.to_owned())?);
            }
            "--pid" => request.watched_tgids.push(value.parse()?),
            "--udp" => request.rules.push(udp_rule(value.parse()?)),
            "--seconds" => duration = Duration::from_secs(value.parse()?),
            "--exclude" => request.excluded.push(value),
            "--avoid" => request.avoided.push(value),
            other => bail!("unknown option {other}"),
        }
    }
    Ok((request, duration))
}

/// Finds an interface's index by its name; in another namespace, by asking `ip`.
fn attachment(netns: Option<Netns>, name: String) -> Result<Attachment> {
    let mut command = std::process::Command::new("nsenter");
    let path = netns.as_ref().map_or(PathBuf::from("/proc/self/ns/net"), Netns::path);
    command.arg(format!("--net={}", path.display())).args(["ip", "-o", "link", "show", &name]);
    let output = String::from_utf8(command.output()?.stdout)?;
    let ifindex = output.split(':').next().and_then(|number| number.trim().parse().ok());
    let ifindex = ifindex.with_context(|| format!("no interface {name}"))?;
    Ok(Attachment { netns, ifindex, name })
}

fn icmp_rule() -> Rule {
    let mut pattern = Pattern { min_len: 8, max_len: u16::MAX, nonce_offset: 4, ..Pattern::default() };
    pattern.fields[0].len = 1;
    pattern.fields[0].mask[0] = 0xff;
    let mut request = pattern;
    request.fields[0].bytes[0] = 8;
    Rule { request, reply: pattern, protocol: 1, nonce_len: 4, ..Rule::default() }
}

fn udp_rule(port: u16) -> Rule {
    let pattern = Pattern { min_len: 8, max_len: u16::MAX, ..Pattern::default() };
    Rule { request: pattern, reply: pattern, port, protocol: 17, nonce_len: 8, symmetric: 1, ..Rule::default() }
}

fn tell_hooks(attached: &Attached) {
    for state in attached.hooks() {
        match &state.outcome {
            Outcome::Attached(choice) => {
                println!("{:20} {} as {}", state.hook.name, choice.attach.name(), choice.program);
            }
            Outcome::Waiting(_) => println!("{:20} waits for a tap", state.hook.name),
            Outcome::Refused(refusal) => println!("{refusal}"),
            Outcome::Excluded => println!("{:20} excluded", state.hook.name),
        }
    }
    for (program, instructions) in attached.verified_instructions() {
        println!("{program:20} {instructions} instructions verified");
    }
    for interface in attached.interfaces() {
        println!("{:?} {} netns {}", interface.attachment, interface.attach, interface.netns_cookie);
    }
    println!("missing {:?}", attached.missing_fields());
}

fn watch(attached: &mut Attached, duration: Duration) -> Result<()> {
    let mut rings = attached.take_rings().context("rings are taken")?;
    let end = Instant::now() + duration;
    while Instant::now() < end {
        rings.poll(Duration::from_millis(100), usize::MAX, |_, record| {
            print(record);
        })?;
    }
    let records = rings.drain(usize::MAX, |_, record| print(record)).records;
    println!("{records} in the last drain");
    Ok(())
}

fn print(record: &[u8]) {
    let Ok((header, body)) = EventHeader::read_from_prefix(record) else {
        return;
    };
    let kind = EventKind::try_from(header.kind);
    print!(
        "{} cpu{} #{} {}/{} irq{} ",
        header.time_ns, header.cpu, header.seq, header.tgid, header.tid, header.softirq
    );
    match kind {
        Ok(EventKind::PacketIngress | EventKind::PacketEgress) => show::<PacketBody>(kind, body),
        Ok(EventKind::SockEnqueue) => show::<SockEnqueueBody>(kind, body),
        Ok(EventKind::SockRead | EventKind::SockSend) => show::<SockCallBody>(kind, body),
        Ok(EventKind::SwitchOut) => show::<SwitchOutBody>(kind, body),
        Ok(EventKind::SwitchIn) => show::<SwitchInBody>(kind, body),
        Ok(EventKind::Waking) => show::<WakingBody>(kind, body),
        Ok(EventKind::QdiscEnqueue | EventKind::QdiscDequeue) => show::<QdiscBody>(kind, body),
        Ok(EventKind::Xmit) => show::<XmitBody>(kind, body),
        Ok(EventKind::Drop) => show::<DropBody>(kind, body),
        Ok(EventKind::Softirq) => show::<SoftirqBody>(kind, body),
        Ok(EventKind::TaskExit) => show::<TaskExitBody>(kind, body),
        Ok(EventKind::TaskFork) => show::<TaskForkBody>(kind, body),
        Ok(EventKind::OtherRead | EventKind::OtherSend) => show::<OtherCallBody>(kind, body),
        Ok(EventKind::BackendRx) => show::<BackendRxBody>(kind, body),
        Ok(EventKind::Neighbour) => show::<NeighbourBody>(kind, body),
        Ok(EventKind::AcceptFull) => show::<AcceptFullBody>(kind, body),
        Ok(EventKind::OtherPeer) => show::<OtherPeerBody>(kind, body),
        Ok(EventKind::SendHeld) => show::<SendHeldBody>(kind, body),
        Ok(EventKind::FileWait) => show::<FileWaitBody>(kind, body),
        Ok(EventKind::Dirtied) => show::<DirtiedBody>(kind, body),
        Ok(EventKind::Reclaim) => show::<ReclaimBody>(kind, body),
        Ok(EventKind::BlockRequest) => show::<BlockRequestBody>(kind, body),
        Ok(EventKind::LockSpin) => show::<LockSpinBody>(kind, body),
        Ok(EventKind::FutexWait) => show::<FutexWaitBody>(kind, body),
        Ok(EventKind::GuestExits) => show::<GuestExitsBody>(kind, body),
        Ok(EventKind::SoftirqWait) => show::<SoftirqWaitBody>(kind, body),
        Ok(EventKind::Ran) => show::<RanBody>(kind, body),
        Err(unknown) => println!("{unknown:?}"),
    }
}

fn show<B: FromBytes + std::fmt::Debug>(kind: impl std::fmt::Debug, body: &[u8]) {
    match B::read_from_bytes(body) {
        Ok(body) => println!("{kind:?} {body:?}"),
        Err(_) => println!("{kind:?} of {} bytes", body.len()),
    }
}

fn tell_losses(attached: &Attached) -> Result<()> {
    for loss in attached.losses()?.iter().filter(|loss| loss.row.emitted > 0) {
        println!("cpu{} {}: {:?}", loss.cpu, loss.kind.name(), loss.row);
    }
    println!("skipped {:?}", attached.skipped_runs());
    Ok(())
}
