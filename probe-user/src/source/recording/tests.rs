use super::*;
use crate::clock::MonoNs;
use crate::event::{Body, Fact, MAX_RECORD_LEN, decode, fact_record, tick_record};
use proptest::prelude::*;
use std::io::Write;

const BOTH: [Compression; 2] = [Compression::None, Compression::Zstd];
/// A recording of the first format.
const FIRST: &[u8] = include_bytes!("../../../../tests/data/healthy.whylag");

fn records() -> Vec<Vec<u8>> {
    let fact = Fact::Hooks { active: vec!["packet_ingress".to_owned()] };
    let ticks = (1..40).map(|n| tick_record(MonoNs(n * 100_000_000)).to_vec());
    std::iter::once(fact_record(MonoNs(0), &fact).unwrap()).chain(ticks).collect()
}

fn recorded(records: &[Vec<u8>], compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), compression).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap()
}

/// As the first format has them, not compressed.
fn in_first_format(records: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [&MAGIC[..], &[1, 0, 0, 0], &WIRE_VERSION.to_le_bytes(), &[0, 0]].concat();
    for record in records {
        file.extend_from_slice(&u32::try_from(record.len()).unwrap().to_le_bytes());
        file.extend_from_slice(record);
    }
    [file, vec![0; 4]].concat()
}

/// Records, and all that was wrong.
fn all(file: &[u8]) -> (Vec<Vec<u8>>, Vec<RecordingError>) {
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    for record in Reader::new(file).unwrap() {
        match record {
            Ok(record) => records.push(record),
            Err(error) => errors.push(error),
        }
    }
    (records, errors)
}

/// Where blocks begin, the end mark included.
fn blocks(file: &[u8]) -> Vec<usize> {
    (0..file.len()).filter(|at| file[*at..].first_chunk().and_then(block::BlockHeader::parse).is_some()).collect()
}

/// A file that has what was written to it, as the disk has after a kill.
#[derive(Clone, Default)]
struct Disk(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn records_come_back_byte_for_byte() {
    for compression in [Compression::None, Compression::Zstd, Compression::Small] {
        let (read, error) = read_all(&recorded(&records(), compression));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(read, records());
    }
}

#[test]
fn a_recording_without_checksums_is_still_read() {
    let (read, error) = read_all(&in_first_format(&records()));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, records());
    let (read, error) = read_all(FIRST);
    assert!(error.is_none() && read.len() > 100, "{error:?}");
}

/// Each bit of a recording flipped: what was lost stands together, was said where it is and how much it
/// was, and all else is there.
#[test]
fn a_flipped_bit_costs_its_block_and_is_told_where_it_is() {
    for compression in BOTH {
        let file = recorded(&records(), compression);
        let begins = blocks(&file);
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (read, errors) = all(&damaged);
            let [RecordingError::Damaged { from, to, records: lost, more: 0 }] = errors[..] else {
                panic!("{compression:?} bit {bit}: {errors:?}");
            };
            assert!(from <= (bit / 8) as u64 && (bit / 8) as u64 <= to, "bit {bit}: {from} to {to}");
            assert!(from == 0 || begins.contains(&usize::try_from(from).unwrap()), "bit {bit}: {from}");
            let missing = (records().len() - read.len()) as u64;
            let in_end_mark = from == *begins.last().unwrap() as u64;
            assert_eq!(lost, (!in_end_mark).then_some(missing), "bit {bit}");
            let whole = records();
            let same = read.iter().zip(&whole).take_while(|(one, other)| one == other).count();
            assert_eq!(read[same..], whole[whole.len() - (read.len() - same)..], "bit {bit}");
            assert!(missing <= 10, "bit {bit} cost {missing} records");
        }
    }
}

#[test]
fn blocks_that_are_missing_or_zeros_are_counted() {
    let file = recorded(&records(), Compression::Zstd);
    let begins = blocks(&file);
    let without = [&file[..begins[2]], &file[begins[4]..]].concat();
    let mut zeros = file;
    zeros[begins[2] + 3..begins[4] - 2].fill(0);
    for (file, place) in [(without, begins[2]..begins[2]), (zeros, begins[2]..begins[4])] {
        let (read, errors) = all(&file);
        let lost = (records().len() - read.len()) as u64;
        let [RecordingError::Damaged { from, to, records, .. }] = errors[..] else { panic!("{errors:?}") };
        assert_eq!((from, to, records), (place.start as u64, place.end as u64, Some(lost)));
        assert!(lost > 5 && lost <= 12, "{lost}");
    }
}

#[test]
fn two_damaged_places_are_two_facts_in_the_stream_and_one_error() {
    let mut file = recorded(&records(), Compression::None);
    let begins = blocks(&file);
    file[begins[1] + 60] ^= 1;
    file[begins[4] + 60] ^= 1;
    let mut holes = Vec::new();
    let mut count = 0;
    let damage = Reader::new(&file[..]).unwrap().drain(&mut |record| {
        let event = decode(record).unwrap();
        count += 1;
        match &event.body {
            Body::Fact(fact) if matches!(**fact, Fact::Unreadable { .. }) => holes.push((count, event.at)),
            _ => {}
        }
        Ok::<_, ()>(())
    });
    assert!(matches!(damage, Ok(Some(RecordingError::Damaged { more: 1, .. }))), "{damage:?}");
    assert_eq!(holes.len(), 2);
    assert!(holes[0].1 < holes[1].1 && holes[0].1 > MonoNs(0), "{holes:?}");
}

#[test]
fn a_recording_cut_at_any_byte_gives_what_is_whole_and_one_error() {
    for compression in BOTH {
        let file = recorded(&records(), compression);
        let begins = blocks(&file);
        for len in 0..file.len() {
            let (read, error) = read_all(&file[..len]);
            assert!(read.len() <= records().len() && read[..] == records()[..read.len()], "{len}");
            match error {
                Some(RecordingError::NotARecording { .. }) => assert!(len < 8),
                Some(RecordingError::Cut { offset }) => {
                    let begin = begins.iter().rfind(|begin| **begin <= len).filter(|_| len >= FILE_HEADER_LEN);
                    assert_eq!(offset, begin.map_or(0, |begin| *begin as u64), "{len}");
                }
                other => panic!("{compression:?} cut at {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_first_format_cut_at_any_byte_gives_what_is_whole_and_one_error() {
    let (whole, _) = read_all(FIRST);
    for (file, whole) in [(FIRST, whole), (&in_first_format(&records()), records())] {
        for len in (FILE_HEADER_LEN..file.len()).step_by(7) {
            let (read, error) = read_all(&file[..len]);
            let Some(RecordingError::Truncated { offset }) = error else { panic!("cut at {len}: {error:?}") };
            let bytes: usize = read.iter().map(|record| record.len() + 4).sum();
            assert_eq!((offset, &read[..]), (bytes as u64, &whole[..read.len()]), "{len}");
        }
    }
}

#[test]
fn a_kill_loses_at_most_the_last_second() {
    for compression in BOTH {
        let disk = Disk::default();
        let mut writer = Writer::new(disk.clone(), compression).unwrap();
        records().iter().for_each(|record| writer.write(record).unwrap());
        let file = disk.0.borrow().clone();
        std::mem::forget(writer);
        let (read, error) = read_all(&file);
        assert!(matches!(error, Some(RecordingError::Cut { .. })), "{error:?}");
        assert!(records().len() - read.len() <= 10, "{compression:?} lost {}", records().len() - read.len());
    }
}

/// With a header that is sound in itself.
fn with_header(version: u16, wire_version: u16) -> Vec<u8> {
    let mut header =
        FileHeader { version: U16::new(version), wire_version: U16::new(wire_version), ..FileHeader::new() };
    header.crc = header.right_crc();
    [header.as_bytes(), &recorded(&records(), Compression::None)[FILE_HEADER_LEN..]].concat()
}

#[test]
fn other_versions_and_other_files_are_named() {
    let error = |file: &[u8]| read_all(file).1;
    assert!(matches!(error(&with_header(2, 9)), Some(RecordingError::UnknownWireVersion { found: 9 })));
    assert!(matches!(error(&with_header(7, 9)), Some(RecordingError::UnknownVersion { found: 7 })));
    let said = |file: &[u8]| error(file).unwrap().to_string();
    assert_eq!(said(b"x"), "this is not a whylag recording");
    assert_eq!(said(b""), "this is not a whylag recording: it is empty");
    assert!(said(b"\x1f\x8b\x08\0\0\0\0\0").ends_with("with `gunzip` first"));
    assert!(said(&zstd::encode_all(FIRST, 1).unwrap()).ends_with("with `unzstd` first"));
    assert!(said(b"\xd4\xc3\xb2\xa1\x02\0\x04\0").contains("whylag replay --pnic"));
}

#[test]
fn a_hostile_length_is_refused_before_anything_is_allocated() {
    let mut file = in_first_format(&[]);
    file.truncate(FILE_HEADER_LEN);
    file.extend_from_slice(&u32::MAX.to_le_bytes());
    let mut reader = Reader::new(&file[..]).unwrap();
    assert!(matches!(reader.next_record(), Some(Err(RecordingError::Corrupt { offset: 0 }))));
    assert!(reader.next_record().is_none(), "an error is said once");
}

#[test]
fn bytes_behind_the_end_mark_are_damage() {
    for compression in BOTH {
        let mut file = recorded(&records(), compression);
        let end = file.len() as u64;
        file.extend([1; 5]);
        let (read, errors) = all(&file);
        assert_eq!(read.len(), records().len());
        let [RecordingError::Damaged { from, to, records: Some(0), .. }] = errors[..] else { panic!("{errors:?}") };
        assert_eq!((from, to), (end, end + 5));
    }
    let (_, error) = read_all(&[in_first_format(&records()), vec![1]].concat());
    assert!(matches!(error, Some(RecordingError::Corrupt { .. })), "{error:?}");
}

#[test]
fn an_empty_or_too_long_record_cannot_be_written() {
    let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
    assert!(matches!(writer.write(&[]), Err(RecordingError::BadRecord { got: 0 })));
    assert!(writer.write(&vec![0; MAX_RECORD_LEN]).is_ok());
    assert!(writer.write(&vec![0; MAX_RECORD_LEN + 1]).is_err());
    let (read, error) = read_all(&writer.finish().unwrap());
    assert!(error.is_none() && read == [vec![0; MAX_RECORD_LEN]]);
}

proptest! {
    #[test]
    fn no_bytes_panic(first in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = if first { in_first_format(&[]) } else { FileHeader::new().as_bytes().to_vec() };
        let _ = read_all(&[&file[..FILE_HEADER_LEN], &bytes].concat());
        let _ = read_all(&bytes);
    }

    #[test]
    fn no_record_is_given_that_was_not_written(
        at in 0_usize..400, len in 1_usize..80, bytes in prop::collection::vec(any::<u8>(), 0..80), compressed in any::<bool>()
    ) {
        let mut file = recorded(&records(), if compressed { Compression::Zstd } else { Compression::None });
        let at = at.min(file.len());
        let end = (at + len).min(file.len());
        file.splice(at..end, bytes);
        let mut whole = records().into_iter();
        for record in read_all(&file).0 {
            prop_assert!(whole.any(|written| written == record));
        }
    }
}
