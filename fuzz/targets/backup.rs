//! Backups: whatever bytes a file holds, reading them ends in what it holds or in an error.
//!
//! Checksums keep nearly all inputs from the code behind them. So the input is read as it is, and once more as a
//! list of contents of frames for which the rest is made: a kind, a length of two bytes, and the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ring::digest::{SHA256, digest};
use rowhouse_service_backup::survey;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const END: u8 = 7;

fuzz_target!(|data: &[u8]| {
    read(data);
    let mut file = b"\x89RHB\r\n\x1a\n\x01\0\0\0".to_vec();
    let mut rest = data;
    while let [kind, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (content, next) = after.split_at(length);
        append(&mut file, *kind, content);
        rest = next;
    }
    read(&file);
});

/// One frame; the last one gets the digest that nobody could guess.
fn append(file: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let mut content = content.to_vec();
    if kind == END {
        content.extend_from_slice(digest(&SHA256, file).as_ref());
    }
    let stored = zstd::bulk::compress(&content, 1).expect("memory can be compressed");
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("inputs are short").to_le_bytes();
    file.push(kind);
    file.extend_from_slice(&length(&content));
    file.extend_from_slice(&length(&stored));
    file.extend_from_slice(&stored);
    let check = digest(&SHA256, file);
    file.extend_from_slice(&check.as_ref()[..8]);
}

/// Memory never waits, so one look is enough.
fn read(bytes: &[u8]) {
    let reading = pin!(survey(bytes, |_, _| Ok(()), |_| {}));
    if let Poll::Ready(Ok(survey)) = reading.poll(&mut Context::from_waker(Waker::noop())) {
        assert_eq!(survey.bytes, bytes.len() as u64);
        assert_eq!(survey.totals.tables, survey.catalogue.tables.len() as u64);
        assert_eq!(survey.totals.queues, survey.catalogue.queues.len() as u64);
        let items: u64 = survey.items.values().sum();
        assert_eq!(survey.totals.entities + survey.totals.changes, items);
    }
}
