//! Bundles that are whole, damaged, and hostile.

use super::content::Draft;
use super::layout::{self, BLOCK, END};
use super::manifest::{Addresses, FORMAT_VERSION, Manifest, Member};
use super::{Bundle, BundleError, Export, Exported, SecretKey, export, write};
use crate::catalog::FIELDS;
use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::event::{Body, Event, Fact, RunFact, TaskId, Threshold, decode, encode, fact_record, tick_record};
use crate::host::{
    CostFact, CounterFact, DiskFact, GuestFact, HostFact, InterruptFact, NicFact, ProgramCost, RingsFact, SettingFact,
    SystemFact,
};
use crate::source::recording::{Compression, Reader, Writer, read_all};
use probe_wire::{Interrupt, OtherPeerBody, PacketBody, Sighting, WIRE_VERSION};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use zerocopy::FromZeros;

const CLIENT: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 20, 30, 40];
const SECRET: &[u8; 16] = b"password=hunter2";

fn run() -> Fact {
    Fact::Run(RunFact {
        version: "0".to_owned(),
        wire_version: WIRE_VERSION,
        signatures: Vec::new(),
        threshold: Threshold::Fixed(DurNs::from_millis(20)),
        lost_after: DurNs::from_secs(1),
        open_report_every: DurNs::from_secs(1),
        max_open: 10,
    })
}

fn record(body: Body) -> Vec<u8> {
    let task = TaskId { tgid: 1, tid: 1 };
    let event = Event { at: MonoNs(7), seq: 1, cpu: 0, task, softirq: 0, interrupt: Interrupt::Unknown, body };
    encode(&event).unwrap()
}

fn packet() -> PacketBody {
    let mut packet = PacketBody::new_zeroed();
    packet.sighting = Sighting { source: CLIENT, destination: CLIENT, nonce: *SECRET, ..Sighting::default() };
    packet
}

/// A few records, with an address and payload, and one that nobody can decode.
fn records() -> Vec<Vec<u8>> {
    let peer = OtherPeerBody { socket: 3, peer: CLIENT, remote_port: 53, local_port: 9 };
    let mut unknown = record(Body::PacketEgress(packet()));
    unknown[16..18].copy_from_slice(&999_u16.to_le_bytes());
    vec![
        fact_record(MonoNs(1), &run()).unwrap(),
        fact_record(MonoNs(1), &Fact::Clock(ClockAnchor { mono: MonoNs(0), unix_ns: 1_600_000_000_000_000_000 }))
            .unwrap(),
        record(Body::PacketIngress(packet())),
        record(Body::OtherPeer(peer)),
        unknown,
        tick_record(MonoNs(8)).to_vec(),
    ]
}

fn recording(records: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Compression::Zstd).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap()
}

/// A bundle of these records, and what was said of it.
fn made_of(records: &[Vec<u8>], addresses: Addresses) -> (Vec<u8>, Exported) {
    let folder = tempfile::tempdir().unwrap();
    let to = &folder.path().join("bundle");
    let from = recording(records);
    let exported = export(Reader::new(&from[..]).unwrap(), &Export { to, addresses, signer: None }).unwrap();
    (std::fs::read(to).unwrap(), exported)
}

fn exported(addresses: Addresses, signer: Option<&SecretKey>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("bundle");
    let from = recording(&records());
    let exported = export(Reader::new(&from[..]).unwrap(), &Export { to: &to, addresses, signer }).unwrap();
    assert!(exported.damage.is_none());
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["bundle"], "nothing else is left in the folder");
    std::fs::read(to).unwrap()
}

fn checked(bytes: &[u8]) -> Result<Bundle<Cursor<&[u8]>>, BundleError> {
    let mut bundle = Bundle::open(Cursor::new(bytes))?;
    bundle.check().map(|()| bundle)
}

fn records_in(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut file = Vec::new();
    checked(bytes).unwrap().into_recording().unwrap().read_to_end(&mut file).unwrap();
    let (records, error) = read_all(&file);
    assert!(error.is_none(), "{error:?}");
    records
}

/// Written as any other, with next to nothing in it: each of its bits is to be tried.
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("bundle");
    let drafts = vec![Draft::new("a.json", "", vec![7; BLOCK + 9]), Draft::new("b.zst", "", b"b".to_vec())];
    write::write(&to, manifest(), drafts, None).unwrap();
    std::fs::read(to).unwrap()
});

#[test]
fn every_flipped_bit_of_a_bundle_is_detected() {
    let mut bytes = SMALL.clone();
    checked(&bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert!(checked(&bytes).is_err(), "bit {bit} of byte {at}");
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_truncation_of_a_bundle_is_detected() {
    let bytes = exported(Addresses::Pseudonyms, None);
    for len in 0..bytes.len() {
        match Bundle::open(Cursor::new(&bytes[..len])) {
            Err(BundleError::Cut { got }) => assert_eq!(got, len as u64),
            Err(BundleError::NotABundle { .. }) => assert!(len <= layout::DIGEST.len()),
            other => panic!("{len}: {other:?}"),
        }
    }
    let more = [&bytes[..], &[0]].concat();
    assert!(matches!(checked(&more), Err(BundleError::Damaged { .. })), "nor may anything be added");
}

#[test]
fn every_flipped_bit_before_and_in_a_signature_is_detected() {
    let key = SecretKey::of(&[7; 32]);
    let mut bytes = exported(Addresses::Pseudonyms, Some(&key));
    let bundle = checked(&bytes).unwrap();
    assert_eq!(bundle.signer(), Some(key.public()));
    bundle.check_signer(&key.public()).unwrap();
    let other = SecretKey::of(&[8; 32]).public();
    assert!(matches!(bundle.check_signer(&other), Err(BundleError::OtherSigner { .. })));
    let mut text = serde_json::to_vec_pretty(bundle.manifest()).unwrap();
    text.push(b'\n');
    let head = layout::room(layout::digest_len() as u64) + layout::room(text.len() as u64) + layout::room(64);
    for at in 0..usize::try_from(head).unwrap() {
        for bit in [0, 7] {
            bytes[at] ^= 1 << bit;
            assert!(Bundle::open(Cursor::new(&bytes)).is_err(), "bit {bit} of byte {at}");
            bytes[at] ^= 1 << bit;
        }
    }
    let unsigned = checked_manifest(&Manifest { signer: None, ..manifest() }, &[]);
    assert!(matches!(unsigned.unwrap().check_signer(&other), Err(BundleError::NotSigned)));
}

#[test]
fn what_changes_while_it_is_read_is_an_error_at_its_end() {
    let mut bytes = exported(Addresses::Pseudonyms, None);
    let at = bytes.windows(8).position(|window| window == b"\x89whylag\n").unwrap();
    bytes[at + 40] ^= 1;
    let mut recording = Bundle::open(Cursor::new(&bytes)).unwrap().into_recording().unwrap();
    let error = recording.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("recording.whylag does not match its SHA-256"), "{error}");
}

#[test]
fn payload_and_addresses_are_nowhere_in_a_bundle() {
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    for (addresses, stay) in [(Addresses::Pseudonyms, false), (Addresses::Plain, true)] {
        let bytes = exported(addresses, None);
        let all: Vec<u8> = records_in(&bytes).concat();
        assert!(!find(&all, SECRET), "the nonce is payload");
        assert_eq!(find(&all, &CLIENT[12..]), stay, "{addresses:?}");
        assert!(!find(&bytes, b"10.20.30.40"), "text members are packed or have none");
    }
}

#[test]
fn an_address_has_one_pseudonym_in_all_kinds_of_records() {
    let records = records_in(&exported(Addresses::Pseudonyms, None));
    let mut seen = BTreeSet::new();
    for record in &records {
        match decode(record).map(|event| event.body) {
            Ok(Body::PacketIngress(packet)) => seen.extend([packet.sighting.source, packet.sighting.destination]),
            Ok(Body::OtherPeer(peer)) => seen.extend([peer.peer]),
            _ => {}
        }
    }
    assert_eq!(seen.len(), 1);
    assert_eq!(seen.first().unwrap()[..13], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, seen.first().unwrap()[12]]);
    let again = records_in(&exported(Addresses::Pseudonyms, None));
    assert_ne!(records[3], again[3], "another bundle has other pseudonyms");
    let says_so = |event: Event| matches!(event.body, Body::Fact(fact) if *fact == Fact::Pseudonyms);
    assert!(says_so(decode(&records[1]).unwrap()), "the recording says what they are");
}

#[test]
fn a_record_that_cannot_be_decoded_keeps_its_place_and_length_only() {
    let (before, after) = (records(), records_in(&exported(Addresses::Plain, None)));
    assert_eq!(before.len(), after.len());
    assert_eq!(before[4].len(), after[4].len());
    assert!(after[4][crate::event::HEADER_LEN..].iter().all(|byte| *byte == 0));
    assert!(decode(&after[4]).is_err());
}

fn id(bundle: &[u8]) -> String {
    checked(bundle).unwrap().incident().unwrap().id
}

#[test]
fn an_incident_has_one_id_in_all_bundles_of_its_recording() {
    let first = exported(Addresses::Pseudonyms, None);
    assert_eq!(id(&first), id(&exported(Addresses::Pseudonyms, None)));
    assert_eq!(id(&first), id(&exported(Addresses::Plain, None)));
    let other = made_of(&records()[..3], Addresses::Plain).0;
    assert_ne!(id(&first), id(&other));
    for bundle in [first, other, std::fs::read(data("bundle-format-1.tar")).unwrap()] {
        checked(&bundle).unwrap().check_sense().unwrap();
    }
}

#[test]
fn a_recording_that_was_taken_out_of_a_bundle_has_no_true_addresses_whatever_is_asked_for() {
    let first = exported(Addresses::Pseudonyms, None);
    let (again, exported) = made_of(&records_in(&first), Addresses::Plain);
    assert_eq!(exported.addresses, Addresses::Pseudonyms);
    let manifest = checked(&again).unwrap().manifest().clone();
    assert_eq!(manifest.addresses, Addresses::Pseudonyms);
    assert!(manifest.left_out.iter().any(|left| left.what == "network addresses"));
    assert_eq!(id(&first), id(&again), "and it is the same incident");
    assert_eq!(records_in(&first).len(), records_in(&again).len());
}

#[test]
fn what_makes_no_sense_is_found_though_nobody_has_changed_it() {
    let from = exported(Addresses::Plain, None);
    let mut bundle = checked(&from).unwrap();
    let names: Vec<_> = bundle.manifest().members.iter().map(|member| member.name.clone()).collect();
    let mut contents: Vec<_> = names.iter().map(|name| (name.as_str(), bundle.packed(name))).collect();
    let text = String::from_utf8(contents[0].1.clone()).unwrap();
    let id = id(&from);
    for (index, content, words) in [
        (0, text.replace(&id, "0123456789ab").into_bytes(), "its id is 0123456789ab"),
        (0, b"{}".to_vec(), "incident.json makes no sense"),
        (2, zstd::encode_all(&b"{}\n{\n"[..], 1).unwrap(), "line 2 of ledgers.jsonl.zst"),
        (3, b"losses".to_vec(), "losses.json makes no sense"),
    ] {
        let whole = std::mem::replace(&mut contents[index].1, content);
        let members = contents.iter().map(|(name, content)| member(name, content)).collect();
        let contents_now: Vec<_> = contents.iter().map(|(name, content)| (*name, &content[..])).collect();
        let file = file_with(&Manifest { members, ..manifest() }, &contents_now);
        let error = checked(&file).unwrap().check_sense().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        contents[index].1 = whole;
    }
}

impl Bundle<Cursor<&[u8]>> {
    /// A member as it stands in the file.
    fn packed(&mut self, name: &str) -> Vec<u8> {
        let mut content = Vec::new();
        self.open_member(name).unwrap().read_to_end(&mut content).unwrap();
        content
    }
}

fn manifest() -> Manifest {
    Manifest {
        kind: "bundle".to_owned(),
        format: FORMAT_VERSION,
        whylag: "0".to_owned(),
        created_at: String::new(),
        addresses: Addresses::Plain,
        signer: None,
        left_out: Vec::new(),
        kept: Vec::new(),
        members: Vec::new(),
    }
}

fn member(name: &str, content: &[u8]) -> Member {
    let (about, bytes) = (String::new(), content.len() as u64);
    let sha256 = hex::encode(Sha256::digest(content));
    Member { name: name.to_owned(), about, bytes, content_bytes: bytes, sha256 }
}

/// A file with this manifest, whatever it says, and its true digest.
fn file_with(manifest: &impl serde::Serialize, contents: &[(&str, &[u8])]) -> Vec<u8> {
    let text = serde_json::to_vec(manifest).unwrap();
    let digest = layout::digest(&hex::encode(Sha256::digest(&text)));
    let mut file = Vec::new();
    let head = [(layout::DIGEST, digest.as_bytes()), (layout::MANIFEST, &text)];
    for (name, content) in head.iter().chain(contents) {
        let len = content.len() as u64;
        file.extend_from_slice(&layout::header(name, len));
        file.extend_from_slice(content);
        file.resize(file.len() + usize::try_from(layout::padding(len)).unwrap(), 0);
    }
    file.resize(file.len() + END, 0);
    file
}

fn checked_manifest(manifest: &Manifest, contents: &[(&str, &[u8])]) -> Result<Bundle<Cursor<Vec<u8>>>, BundleError> {
    let mut bundle = Bundle::open(Cursor::new(file_with(manifest, contents)))?;
    bundle.check().map(|()| bundle)
}

#[test]
fn a_newer_version_is_refused_in_a_sentence() {
    for found in [FORMAT_VERSION + 1, 0, u64::MAX] {
        let file = file_with(&serde_json::json!({"format": found, "something": "else"}), &[]);
        let error = Bundle::open(Cursor::new(file)).unwrap_err();
        assert!(matches!(error, BundleError::UnknownVersion { .. }));
        assert!(error.to_string().contains(&format!("format version {found}")), "{error}");
    }
}

#[test]
fn what_a_newer_whylag_adds_does_no_harm() {
    let mut manifest =
        serde_json::to_value(Manifest { members: vec![member("new.bin", b"new")], ..manifest() }).unwrap();
    manifest["added"] = serde_json::json!({"later": true});
    let mut bundle = Bundle::open(Cursor::new(file_with(&manifest, &[("new.bin", b"new")]))).unwrap();
    bundle.check().unwrap();
    assert_eq!(bundle.content("new.bin", 3).unwrap(), b"new");
    assert!(matches!(bundle.content("new.bin", 2), Err(BundleError::TooLarge { .. })));
    assert!(matches!(bundle.content("other", 9), Err(BundleError::NoMember { .. })));
}

#[test]
fn names_lead_nowhere_and_stand_once() {
    let long = "x".repeat(65);
    for name in ["../up", "/etc/passwd", "a/b", "", ".hidden", "UP", "a\u{1b}[2J", "manifest.json", "é", &long] {
        let manifest = Manifest { members: vec![member(name, b"x")], ..manifest() };
        assert!(matches!(checked_manifest(&manifest, &[]), Err(BundleError::Damaged { .. })), "{name:?}");
    }
    let manifest = Manifest { members: vec![member("a", b"x"), member("a", b"x")], ..manifest() };
    let error = checked_manifest(&manifest, &[("a", b"x"), ("a", b"x")]).unwrap_err();
    assert!(error.to_string().contains("names a twice"), "{error}");
}

#[test]
fn links_and_folders_are_no_members() {
    let manifest = Manifest { members: vec![member("a", b"x")], ..manifest() };
    let good = file_with(&manifest, &[("a", b"x")]);
    let header = good.len() - END - 2 * BLOCK;
    for kind in [b'1', b'2', b'3', b'5', b'6', b'L', b'x'] {
        let mut file = good.clone();
        let mut link = tar::Header::from_byte_slice(&layout::header("a", 1)).clone();
        link.set_entry_type(tar::EntryType::new(kind));
        link.set_cksum();
        file[header..header + BLOCK].copy_from_slice(link.as_bytes());
        assert!(checked(&file).is_err(), "{}", char::from(kind));
    }
    checked(&good).unwrap();
}

#[test]
fn claims_beyond_the_limits_are_refused_before_anything_is_read() {
    let many = (0..65).map(|n| member(&format!("m{n}"), b"")).collect();
    assert!(matches!(
        checked_manifest(&Manifest { members: many, ..manifest() }, &[]),
        Err(BundleError::TooLarge { .. })
    ));
    let huge = Member { bytes: u64::MAX, ..member("a", b"") };
    let huge = Manifest { members: vec![huge], ..manifest() };
    assert!(matches!(checked_manifest(&huge, &[]), Err(BundleError::TooLarge { .. })));
    let mut file = file_with(&manifest(), &[]);
    let at = 2 * BLOCK;
    file[at..at + BLOCK].copy_from_slice(&layout::header(layout::MANIFEST, 1 << 32));
    assert!(matches!(Bundle::open(Cursor::new(file)), Err(BundleError::TooLarge { .. })));
}

#[test]
fn a_decompression_bomb_stops_at_what_it_claims() {
    let bomb = zstd::encode_all(&vec![0; 1 << 24][..], 3).unwrap();
    for claimed in [10, (1 << 24) - 1, (1 << 24) + 1] {
        let row = Member { content_bytes: claimed, ..member("bomb.zst", &bomb) };
        let manifest = Manifest { members: vec![row], ..manifest() };
        let mut bundle = checked_manifest(&manifest, &[("bomb.zst", &bomb)]).unwrap();
        assert!(bundle.content("bomb.zst", 1 << 30).is_err(), "{claimed}");
        assert!(matches!(bundle.content("bomb.zst", 5), Err(BundleError::TooLarge { .. })));
    }
}

#[test]
fn no_file_is_left_when_writing_fails() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("taken");
    std::fs::write(&to, "somebody's").unwrap();
    let drafts = vec![Draft::new("a", "", b"x".to_vec())];
    assert!(write::write(&to, manifest(), drafts, None).is_err());
    assert_eq!(std::fs::read(&to).unwrap(), b"somebody's");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let nowhere = folder.path().join("no/such/folder");
    assert!(write::write(&nowhere, manifest(), Vec::new(), None).is_err());
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    write::write(&empty, manifest(), vec![Draft::new("a", "", b"x".to_vec())], None).unwrap();
    checked(&std::fs::read(&empty).unwrap()).unwrap();
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// Written once by the first version that wrote bundles; never to be written again.
#[test]
fn the_first_format_stays_readable() {
    let bytes = std::fs::read(data("bundle-format-1.tar")).unwrap();
    let mut bundle = checked(&bytes).unwrap();
    assert_eq!(bundle.manifest().format, 1);
    let incident = bundle.incident().unwrap();
    assert_eq!(incident.verdicts[0].cause.as_deref(), Some("app.self_wait"));
    assert!(bundle.signer().is_some(), "it is signed");
    assert!(records_in(&bytes).len() > 100);
}

fn is_listed(record: &str, value: &impl serde::Serialize) {
    let mut found = BTreeSet::new();
    names("", &serde_json::to_value(value).unwrap(), &mut found);
    let listed = FIELDS.iter().filter(|field| field.record == record);
    let listed: BTreeSet<_> = listed.map(|field| field.name.to_owned()).filter(|name| name != "type").collect();
    found.remove("type");
    assert_eq!(found, listed);
}

#[test]
fn the_catalogue_lists_every_field_of_a_manifest() {
    let left_out = vec![super::LeftOut::new("a", "b")];
    is_listed("bundle", &Manifest { members: vec![member("a", b"x")], left_out, ..manifest() });
}

#[test]
fn the_catalogue_lists_every_field_about_host_and_cost() {
    let name = String::new;
    let facts = [
        HostFact::System(SystemFact::default()),
        HostFact::Settings { settings: vec![SettingFact { name: name(), value: name() }] },
        HostFact::Nic(NicFact {
            rings: Some(RingsFact::default()),
            interrupts: vec![InterruptFact::default()],
            ..NicFact::default()
        }),
        HostFact::Disk(DiskFact::default()),
        HostFact::Guest(GuestFact::default()),
        HostFact::Counters { counters: vec![CounterFact { name: name(), value: 1 }] },
        HostFact::Gap { what: name(), reason: name() },
    ];
    is_listed("host", &serde_json::json!({ "facts": facts }));
    let programs = vec![ProgramCost { name: name(), runs: 1, run_ns: 1 }];
    is_listed("cost", &CostFact { programs, ..CostFact::default() });
}

#[test]
fn the_catalogue_lists_every_field_of_an_incident() {
    let folder = tempfile::tempdir().unwrap();
    let from = std::fs::read(data("lock-holder-computes.whylag")).unwrap();
    let to = &folder.path().join("bundle");
    let how = Export { to, addresses: Addresses::Pseudonyms, signer: None };
    let exported = export(Reader::new(&from[..]).unwrap(), &how).unwrap();
    is_listed("incident", &exported.incident);
}

fn names(name: &str, value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                found.insert(name.clone());
                names(&name, value, found);
            }
        }
        serde_json::Value::Array(elements) => {
            elements.iter().for_each(|element| names(&format!("{name}[]"), element, found));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(at in 0_usize..4_000, bytes in prop::collection::vec(any::<u8>(), 1..600)) {
        let mut file = SMALL.clone();
        let at = at.min(file.len());
        file.truncate(at);
        file.extend_from_slice(&bytes);
        prop_assert!(checked(&file).is_err());
    }

    #[test]
    fn no_manifest_panics(at in 0_usize..500, bytes in prop::collection::vec(any::<u8>(), 0..8)) {
        let mut text = serde_json::to_vec(&Manifest { members: vec![member("a", b"x")], ..manifest() }).unwrap();
        let at = at.min(text.len());
        text.splice(at..(at + bytes.len()).min(text.len()), bytes);
        if let Ok(manifest) = serde_json::from_slice::<serde_json::Value>(&text) {
            let _ = Bundle::open(Cursor::new(file_with(&manifest, &[("a", b"x")])));
        }
    }
}
