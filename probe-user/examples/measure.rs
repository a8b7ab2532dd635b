//! Measures what the programs cost: `measure [RULES]`; needs root, sends no packet.
//!
//! Runs of a packet program by `BPF_PROG_TEST_RUN`, interleaved with the empty one within each
//! round; the medians of the rounds are compared. Then how long attach and detach take.

use std::time::Instant;

use anyhow::{Context as _, Result};
use probe_user::load::{Attached, Attachment, Request, load};
use probe_wire::{Pattern, Rule};

const ROUNDS: usize = 31;
const RUNS: u32 = 200_000;
const EMPTY: &str = "test_empty";
const MEASURED: &str = "stamp_ingress";

fn main() -> Result<()> {
    let rules = std::env::args().nth(1).map_or(Ok(1), |count| count.parse())?;
    let request = Request { rules: (0..rules).map(rule).collect(), interfaces: vec![lo()], ..Request::default() };
    let begun = Instant::now();
    let mut attached = load(&request)?;
    println!("attach {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    for (program, instructions) in attached.verified_instructions() {
        println!("{program:16} {instructions:8} instructions verified");
    }
    for (name, frame) in frames() {
        compare(&mut attached, name, &frame)?;
    }
    let begun = Instant::now();
    drop(attached);
    println!("detach {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn lo() -> Attachment {
    Attachment { netns: None, ifindex: 1, name: "lo".into() }
}

/// A UDP signature with four bytes at the start of the payload and a nonce.
fn rule(number: u16) -> Rule {
    let mut pattern = Pattern { min_len: 12, max_len: u16::MAX, nonce_offset: 4, ..Pattern::default() };
    pattern.fields[0].bytes[..4].copy_from_slice(b"HCHK");
    pattern.fields[0].mask[..4].fill(0xff);
    pattern.fields[0].len = 4;
    Rule {
        request: pattern,
        reply: pattern,
        port: 4000 + number,
        protocol: 17,
        nonce_len: 8,
        symmetric: 1,
        ..Rule::default()
    }
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("udp, other port", ipv4(17, &udp(9, b"other traffic of 64 bytes and a bit more"))),
        ("udp, our port, other bytes", ipv4(17, &udp(4000, b"other traffic of 64 bytes and a bit"))),
        ("tcp", ipv4(6, &tcp())),
        ("icmp", ipv4(1, &[8; 40])),
        ("arp", [[0; 12].as_slice(), &[8, 6], &[0; 46]].concat()),
        ("udp, a check", ipv4(17, &udp(4000, b"HCHK12345678 and some more bytes"))),
    ]
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let header = [0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [[0; 12].as_slice(), &[8, 0], &header, payload].concat()
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    [&999_u16.to_be_bytes(), &port.to_be_bytes(), &len.to_be_bytes(), [0; 2].as_slice(), payload].concat()
}

fn tcp() -> Vec<u8> {
    let mut segment = vec![0; 40];
    segment[..4].copy_from_slice(&[0x1f, 0x90, 0xc0, 0x01]);
    segment[12] = 0x50;
    segment[13] = 0x10;
    segment
}

fn compare(attached: &mut Attached, name: &str, frame: &[u8]) -> Result<()> {
    let mut empty = Vec::new();
    let mut full = Vec::new();
    for _ in 0..ROUNDS {
        empty.push(attached.dry_run(EMPTY, frame, RUNS)?.run_ns);
        full.push(attached.dry_run(MEASURED, frame, RUNS)?.run_ns);
    }
    let (empty, full) = (median(empty)?, median(full)?);
    println!("{name:28} empty {empty} ns, {MEASURED} {full} ns: {} ns more", full.saturating_sub(empty));
    Ok(())
}

fn median(mut values: Vec<u64>) -> Result<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied().context("no rounds")
}
