//! How long entities live: until a time that follows from their Timestamp, or from one of their properties.
//!
//! What has expired does not exist, whether or not it has been removed: nobody reads it, a condition finds nothing there,
//! and its values of unique indexes are free. Every page and every commit judges at one instant of the engine's clock. An
//! engine removes what has expired in the background, a little at a time; the changes tell of that as of any delete.

use rowhouse_types::{Corrupt, RecordRef, Timestamp, ValueRef};
use std::time::Duration;

const TICKS_PER_SECOND: u64 = 10_000_000;

/// When the entities of a table expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ttl {
    /// The DateTime that the age is counted from; the Timestamp without. An entity that has no such property, or one of
    /// another type, never expires.
    pub property: Option<Box<str>>,
    /// An entity expires so long after that: at once, if a property says when.
    pub after: Duration,
}

/// Tells at one instant what has expired.
#[derive(Clone, Copy, Debug)]
pub struct Expiry<'a> {
    ttl: &'a Ttl,
    /// What is from then or before; none if nothing can be.
    last: Option<Timestamp>,
    /// What was written by this commit has not, whatever it says.
    spared: Option<Timestamp>,
}

impl Ttl {
    /// From what an engine keeps: the property, and [`Ttl::ticks`].
    pub fn of_ticks(property: Option<Box<str>>, ticks: u64) -> Self {
        let nanos = u32::try_from(ticks % TICKS_PER_SECOND * 100).expect("less than a second");
        Self { property, after: Duration::new(ticks / TICKS_PER_SECOND, nanos) }
    }

    /// The age in ticks of 100 ns; no more than a signed number holds, which is beyond all times.
    pub fn ticks(&self) -> u64 {
        let ticks = u64::try_from(self.after.as_nanos() / 100).unwrap_or(u64::MAX);
        ticks.min(i64::MAX.cast_unsigned())
    }

    /// At that instant.
    pub fn at(&self, now: Timestamp) -> Expiry<'_> {
        let last = now.ticks().checked_sub(self.ticks()).and_then(Timestamp::from_ticks);
        Expiry { ttl: self, last, spared: None }
    }

    /// When the entity expires, if ever.
    pub fn expires(&self, record: RecordRef<'_>) -> Result<Option<Timestamp>, Corrupt> {
        let expires = |from: Timestamp| from.ticks().checked_add(self.ticks());
        Ok(self.counted_from(record)?.and_then(expires).and_then(Timestamp::from_ticks))
    }

    fn counted_from(&self, record: RecordRef<'_>) -> Result<Option<Timestamp>, Corrupt> {
        let Some(property) = &self.property else { return Ok(Some(record.timestamp())) };
        Ok(match record.get(property)? {
            Some(ValueRef::DateTime(at)) => Some(at),
            _ => None,
        })
    }
}

impl Expiry<'_> {
    /// For the commands of a commit of that Timestamp: they are judged by what had expired before it, and see what those before
    /// them have written.
    #[must_use]
    pub fn sparing(self, commit: Timestamp) -> Self {
        Self { spared: Some(commit), ..self }
    }

    /// Whether the entity has expired.
    pub fn has_expired(&self, record: RecordRef<'_>) -> Result<bool, Corrupt> {
        if self.spared == Some(record.timestamp()) {
            return Ok(false);
        }
        let Some(last) = self.last else { return Ok(false) };
        Ok(self.ttl.counted_from(record)?.is_some_and(|from| from <= last))
    }

    /// The property that is looked at; the Timestamp if none.
    pub fn property(&self) -> Option<&str> {
        self.ttl.property.as_deref()
    }

    /// The latest of what has expired; none if nothing has.
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_types::RecordBuilder;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EDM_MIN.plus_seconds(seconds)
    }

    fn ttl(property: Option<&str>, seconds: u64) -> Ttl {
        Ttl { property: property.map(Into::into), after: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_instant_of_expiry_is_the_first_without_the_entity() {
        let mut builder = RecordBuilder::new();
        builder.push("Until", ValueRef::DateTime(at(50))).unwrap();
        builder.push("Text", ValueRef::String("soon")).unwrap();
        let record = builder.finish(at(100));
        for (ttl, expires) in [
            (ttl(None, 10), Some(110)),
            (ttl(Some("Until"), 0), Some(50)),
            (ttl(Some("Until"), 10), Some(60)),
            (ttl(Some("Text"), 0), None),
            (ttl(Some("Other"), 0), None),
        ] {
            assert_eq!(ttl.expires(record.as_ref()).unwrap(), expires.map(at), "{ttl:?}");
            for now in [0, 49, 50, 59, 60, 109, 110, 111] {
                let expired = ttl.at(at(now)).has_expired(record.as_ref()).unwrap();
                assert_eq!(expired, expires.is_some_and(|at| at <= now), "{ttl:?} at {now}");
            }
        }
    }

    #[test]
    fn ages_beyond_all_times_never_come() {
        let record = RecordBuilder::new().finish(at(0));
        let ttl = Ttl { property: None, after: Duration::MAX };
        assert!(!ttl.at(Timestamp::MAX).has_expired(record.as_ref()).unwrap());
        assert_eq!(ttl.expires(record.as_ref()).unwrap(), None);
    }

    #[test]
    fn ages_come_back_from_ticks() {
        for nanos in [0, 100, 1_234_567_800, u64::MAX / 100 * 100] {
            let ttl = Ttl { property: Some("x".into()), after: Duration::from_nanos(nanos) };
            assert_eq!(Ttl::of_ticks(ttl.property.clone(), ttl.ticks()), ttl);
        }
        assert_eq!(Ttl { property: None, after: Duration::MAX }.ticks(), i64::MAX.cast_unsigned());
    }
}
