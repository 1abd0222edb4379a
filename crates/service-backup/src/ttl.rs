//! When the entities of a table expire, in a backup. What had expired is in it unless it was removed, because it comes back
//! if it is to live longer; with what expires later it is gone soon after it was restored.

use crate::fields::{Fields, Offence, Put};
use rowhouse_store::{Scan, Store, StoreError, TableId, Take, Ttl};
use rowhouse_types::{Direction, KeyRange, Timestamp, check_property_name};
use std::time::{Duration, Instant};

/// Entities of a page that is searched for expired ones, and how many bytes and how long it takes at most.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES: usize = 1 << 20;
const PAGE_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn put(out: &mut Vec<u8>, ttl: Option<&Ttl>) {
    out.put_option(ttl, |out, ttl| {
        out.put_u64(ttl.ticks());
        out.put_option(ttl.property.as_deref(), |out, name| out.put_short(name.as_bytes()));
    });
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Option<Ttl>, Offence> {
    fields.option(|fields| {
        let ticks = fields.u64()?;
        if i64::MAX.cast_unsigned() < ticks {
            return Err("entities live longer than any time");
        }
        let property: Option<Box<str>> = fields.option(|fields| Ok(fields.text()?.into()))?;
        if property.as_ref().is_some_and(|name| check_property_name(name).is_err()) {
            return Err("entities expire by a property that none can have");
        }
        Ok(Ttl::of_ticks(property, ticks))
    })
}

/// Has the entities of a table expire as those did that were saved, when all are in. False if the TTL was left off: an entity
/// that existed when the backup was taken has expired by the time that is given, so the server would remove it, and with it
/// perhaps what the backup was restored for.
pub(crate) async fn set(
    store: &dyn Store,
    table: TableId,
    saved: Option<&Ttl>,
    taken: Timestamp,
    expired_by: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let Some(ttl) = saved else { return Ok(true) };
    if let Some(now) = expired_by
        && has_expired_since(store, table, ttl, taken, now).await?
    {
        return Ok(false);
    }
    store.set_ttl(table, Some(ttl.clone())).await?;
    Ok(true)
}

/// Whether an entity of the table that had not expired at the first time has at the second.
async fn has_expired_since(
    store: &dyn Store,
    table: TableId,
    ttl: &Ttl,
    before: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let (before, now) = (ttl.at(before), ttl.at(now));
    let mut range = KeyRange::all();
    loop {
        let scan = Scan {
            ranges: vec![range],
            through: None,
            direction: Direction::Ascending,
            take: Take::Entities,
            filter: None,
            select: Some(ttl.property.iter().cloned().collect()),
            limit: PAGE_ROWS,
            max_bytes: PAGE_BYTES,
            deadline: Instant::now() + PAGE_WITHIN,
        };
        let page = store.scan(table, scan).await?;
        for row in page.rows.iter() {
            let record = row?.record;
            if now.has_expired(record)? && !before.has_expired(record)? {
                return Ok(true);
            }
        }
        match page.next {
            Some(start) => range = KeyRange { start, end: None },
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn bytes(ttl: Option<&Ttl>) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, ttl);
        bytes
    }

    /// As `docs/formats/backup.md` has them.
    #[test]
    fn settings_are_these_bytes_and_read_back() {
        let day = Ttl { property: None, after: Duration::from_hours(24) };
        let until = Ttl { property: Some("Until".into()), after: Duration::ZERO };
        assert_eq!(bytes(None), [0]);
        assert_eq!(bytes(Some(&day)), *b"\x01\0\xc0\x69\x2a\xc9\0\0\0\0");
        assert_eq!(bytes(Some(&until)), *b"\x01\0\0\0\0\0\0\0\0\x01\x05\0Until");
        for ttl in [None, Some(day), Some(until)] {
            let bytes = bytes(ttl.as_ref());
            let mut fields = Fields::new(&bytes);
            assert_eq!(read(&mut fields), Ok(ttl));
            assert!(fields.is_empty());
        }
    }

    #[test]
    fn what_none_can_be_is_refused() {
        for wrong in [
            &b"\x02"[..],
            b"\x01\0\0\0",
            b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\0",
            b"\x01\0\0\0\0\0\0\0\0\x01\x03\0a-b",
        ] {
            assert!(read(&mut Fields::new(wrong)).is_err(), "{wrong:?}");
        }
    }
}
