//! Instants of 100 ns, as the service counts them, and the three spellings that the protocol uses.
//!
//! A [`Timestamp`] can hold any instant of the years 1 to 9999. What an `Edm.DateTime` may hold is
//! narrower: [`Timestamp::is_edm`].

use std::fmt;

/// 100-ns ticks since 0001-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// Why a text is not an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// It is not in any of the forms.
    #[error("not a date and time")]
    Syntax,
    /// The form is right, the year is not within 1 to 9999 or a field is out of its range.
    #[error("date and time out of range")]
    Range,
}

const TICKS_PER_SECOND: u64 = 10_000_000;
const SECONDS_PER_DAY: u64 = 86_400;
/// Seconds from 0001-01-01 to 1970-01-01.
const UNIX_EPOCH_SECONDS: u64 = 62_135_596_800;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A calendar date and a time of day, all in range.
struct Fields {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    ticks: u64,
}

/// The canonical text of an instant, `2022-05-06T00:34:41.820498Z`.
#[derive(Clone, Copy, Debug)]
pub struct IsoText {
    bytes: [u8; 28],
    len: usize,
}

impl IsoText {
    /// The text as bytes, all of them ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("ASCII digits only")
    }
}

fn two_digits(value: u64) -> [u8; 2] {
    [b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]
}

impl Timestamp {
    /// 1601-01-01T00:00:00Z, the least value of an `Edm.DateTime` property.
    pub const EDM_MIN: Self = Self(504_911_232_000_000_000);
    /// 9999-12-31T23:59:59.9999999Z, the greatest instant.
    pub const MAX: Self = Self(3_155_378_975_999_999_999);

    /// From ticks since 0001-01-01; nothing beyond the year 9999.
    pub fn from_ticks(ticks: u64) -> Option<Self> {
        (ticks <= Self::MAX.0).then_some(Self(ticks))
    }

    /// Ticks since 0001-01-01T00:00:00Z.
    pub fn ticks(self) -> u64 {
        self.0
    }

    /// From the time since 1970, cut to a tick; instants beyond the year 9999 become the last one.
    pub fn from_unix(since_epoch: std::time::Duration) -> Self {
        let ticks = u64::from(since_epoch.subsec_nanos()) / 100;
        let seconds = since_epoch.as_secs().saturating_add(UNIX_EPOCH_SECONDS);
        Self(seconds.saturating_mul(TICKS_PER_SECOND).saturating_add(ticks)).min(Self::MAX)
    }

    /// Whole seconds since 1970, negative before.
    pub fn unix_seconds(self) -> i64 {
        (self.0 / TICKS_PER_SECOND).cast_signed() - UNIX_EPOCH_SECONDS.cast_signed()
    }

    /// The next tick.
    pub fn next(self) -> Self {
        Self(self.0 + 1).min(Self::MAX)
    }

    /// Later by so many seconds, or the last instant.
    pub fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(TICKS_PER_SECOND))).min(Self::MAX)
    }

    /// Distance in whole seconds, whichever is later.
    pub fn seconds_from(self, other: Self) -> u64 {
        self.0.abs_diff(other.0) / TICKS_PER_SECOND
    }

    /// True if an `Edm.DateTime` property may hold it: from the year 1601 on.
    pub fn is_edm(self) -> bool {
        self >= Self::EDM_MIN
    }

    /// Parses ISO 8601: `YYYY-MM-DDThh:mm[:ss[.fraction]]` with `Z`, an offset or nothing (which
    /// means UTC). Digits beyond the seventh of the fraction are cut.
    pub fn parse_iso(text: &str) -> Result<Self, TimeError> {
        let mut cursor = Cursor(text.as_bytes());
        let date = cursor.date()?;
        cursor.expect(b'T')?;
        cursor.time_of_day(date)
    }

    /// Parses what shared access signatures and policies allow: [`Self::parse_iso`] or `YYYY-MM-DD`.
    pub fn parse_date_or_iso(text: &str) -> Result<Self, TimeError> {
        let mut cursor = Cursor(text.as_bytes());
        let (year, month, day) = cursor.date()?;
        if cursor.0.is_empty() {
            return Fields { year, month, day, hour: 0, minute: 0, second: 0, ticks: 0 }.join(0);
        }
        cursor.expect(b'T')?;
        cursor.time_of_day((year, month, day))
    }

    /// Parses `Mon, 27 Jun 2022 15:25:14 GMT`. The name of the day is not compared with the date.
    pub fn parse_rfc1123(text: &str) -> Result<Self, TimeError> {
        let text = text.trim();
        let (weekday, rest) = text.split_once(", ").ok_or(TimeError::Syntax)?;
        if !DAYS.contains(&weekday) {
            return Err(TimeError::Syntax);
        }
        let mut cursor = Cursor(rest.as_bytes());
        let day = cursor.digits(if rest.as_bytes().get(1) == Some(&b' ') { 1 } else { 2 })?;
        cursor.expect(b' ')?;
        let name = cursor.0.get(..3).ok_or(TimeError::Syntax)?;
        let month = MONTHS.iter().position(|m| m.as_bytes() == name).ok_or(TimeError::Syntax)?;
        cursor.0 = &cursor.0[3..];
        cursor.expect(b' ')?;
        let year = cursor.digits(4)?;
        cursor.expect(b' ')?;
        let hour = cursor.digits(2)?;
        cursor.expect(b':')?;
        let minute = cursor.digits(2)?;
        cursor.expect(b':')?;
        let second = cursor.digits(2)?;
        if cursor.0 != b" GMT" {
            return Err(TimeError::Syntax);
        }
        let month = month as u64 + 1;
        Fields { year, month, day, hour, minute, second, ticks: 0 }.join(0)
    }

    /// `2022-05-06T00:34:41.8204980Z`: always seven digits, as in policies and error messages.
    pub fn iso7(self) -> String {
        let f = self.split();
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:07}Z",
            f.year, f.month, f.day, f.hour, f.minute, f.second, f.ticks
        )
    }

    /// `Mon, 27 Jun 2022 15:25:14 GMT`.
    pub fn rfc1123(self) -> String {
        let f = self.split();
        // 0001-01-01 was a Monday.
        let weekday = DAYS[(self.0 / TICKS_PER_SECOND / SECONDS_PER_DAY % 7) as usize];
        let month = usize::try_from(f.month - 1).map_or("", |index| MONTHS[index]);
        format!(
            "{weekday}, {:02} {month} {:04} {:02}:{:02}:{:02} GMT",
            f.day, f.year, f.hour, f.minute, f.second
        )
    }

    /// `01/31/0001 00:00:00`: how the service quotes a DateTime that is out of range.
    pub fn us_date(self) -> String {
        let f = self.split();
        format!(
            "{:02}/{:02}/{:04} {:02}:{:02}:{:02}",
            f.month, f.day, f.year, f.hour, f.minute, f.second
        )
    }

    /// The canonical text: UTC, `Z`, no trailing zeros in the fraction.
    pub fn iso(self) -> IsoText {
        let f = self.split();
        let mut text = *b"0000-00-00T00:00:00.0000000Z";
        for (at, value) in [
            (0, f.year / 100),
            (2, f.year % 100),
            (5, f.month),
            (8, f.day),
            (11, f.hour),
            (14, f.minute),
            (17, f.second),
        ] {
            text[at..at + 2].copy_from_slice(&two_digits(value));
        }
        let mut end = 19;
        if f.ticks != 0 {
            for (at, value) in [(20, f.ticks / 100_000), (22, f.ticks / 1_000), (24, f.ticks / 10)]
            {
                text[at..at + 2].copy_from_slice(&two_digits(value % 100));
            }
            text[26] = b'0' + (f.ticks % 10) as u8;
            end = 27;
            while text[end - 1] == b'0' {
                end -= 1;
            }
        }
        text[end] = b'Z';
        IsoText { bytes: text, len: end + 1 }
    }

    fn split(self) -> Fields {
        let (seconds, ticks) = (self.0 / TICKS_PER_SECOND, self.0 % TICKS_PER_SECOND);
        let (days, second_of_day) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
        // Days since 0000-03-01, so that the leap day is the last of its year.
        let z = days + 306;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Fields {
            year,
            month,
            day,
            hour: second_of_day / 3_600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            ticks,
        }
    }
}

impl Fields {
    /// Checks every field and subtracts the offset (in minutes east of UTC).
    fn join(self, offset_minutes: i64) -> Result<Timestamp, TimeError> {
        let leap = self.year.is_multiple_of(4)
            && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let days_in_month = match self.month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let in_range = (1..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in_month).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second < 60;
        if !in_range {
            return Err(TimeError::Range);
        }
        let year = self.year - u64::from(self.month <= 2);
        let (era, year_of_era) = (year / 400, year % 400);
        let shifted = if self.month > 2 { self.month - 3 } else { self.month + 9 };
        let day_of_year = (153 * shifted + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 306;
        let seconds = days * SECONDS_PER_DAY + self.hour * 3_600 + self.minute * 60 + self.second;
        let seconds = seconds.checked_add_signed(-offset_minutes * 60).ok_or(TimeError::Range)?;
        Timestamp::from_ticks(seconds * TICKS_PER_SECOND + self.ticks).ok_or(TimeError::Range)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.iso().as_str())
    }
}

/// What is left of the text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn digits(&mut self, count: usize) -> Result<u64, TimeError> {
        let digits = self.0.get(..count).ok_or(TimeError::Syntax)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(TimeError::Syntax);
        }
        self.0 = &self.0[count..];
        Ok(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    }

    fn expect(&mut self, byte: u8) -> Result<(), TimeError> {
        if self.take(byte) { Ok(()) } else { Err(TimeError::Syntax) }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn date(&mut self) -> Result<(u64, u64, u64), TimeError> {
        let year = self.digits(4)?;
        self.expect(b'-')?;
        let month = self.digits(2)?;
        self.expect(b'-')?;
        Ok((year, month, self.digits(2)?))
    }

    fn time_of_day(mut self, date: (u64, u64, u64)) -> Result<Timestamp, TimeError> {
        let (year, month, day) = date;
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let minute = self.digits(2)?;
        let (mut second, mut ticks) = (0, 0);
        if self.take(b':') {
            second = self.digits(2)?;
            if self.take(b'.') {
                let count = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
                if count == 0 {
                    return Err(TimeError::Syntax);
                }
                let kept = count.min(7);
                ticks = (kept..7).fold(self.digits(kept)?, |ticks, _| ticks * 10);
                self.0 = &self.0[count - kept..];
            }
        }
        let offset = match self.0 {
            b"" | b"Z" => 0,
            [sign @ (b'+' | b'-'), rest @ ..] => {
                self.0 = rest;
                let hours = self.digits(2)?;
                self.take(b':');
                let minutes = self.digits(2)?;
                if !self.0.is_empty() || hours > 14 || minutes > 59 {
                    return Err(TimeError::Syntax);
                }
                let east = (hours * 60 + minutes).cast_signed();
                if *sign == b'+' { east } else { -east }
            }
            _ => return Err(TimeError::Syntax),
        };
        Fields { year, month, day, hour, minute, second, ticks }.join(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn iso_in_and_out() {
        let cases = [
            ("2008-07-10T00:00:00", "2008-07-10T00:00:00Z"),
            ("2008-07-10T00:00:00.000000Z", "2008-07-10T00:00:00Z"),
            ("2008-07-10T00:00:00.283000Z", "2008-07-10T00:00:00.283Z"),
            ("2008-07-10T00:00:00.123456789Z", "2008-07-10T00:00:00.1234567Z"),
            ("2008-07-10T02:30:00+02:30", "2008-07-10T00:00:00Z"),
            ("2008-07-10T00:00:00+00:00", "2008-07-10T00:00:00Z"),
            ("2008-02-29T23:59Z", "2008-02-29T23:59:00Z"),
            ("1601-01-01T00:00:00Z", "1601-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ];
        for (input, output) in cases {
            assert_eq!(Timestamp::parse_iso(input).unwrap().to_string(), output, "{input}");
        }
        assert_eq!(Timestamp::parse_iso("1601-01-01T00:00:00Z"), Ok(Timestamp::EDM_MIN));
        assert_eq!(Timestamp::parse_iso("9999-12-31T23:59:59.9999999Z"), Ok(Timestamp::MAX));
    }

    #[test]
    fn what_is_refused() {
        use TimeError::{Range, Syntax};
        let cases = [
            ("", Syntax),
            ("2008-07-10", Syntax),
            ("2008-07-10T", Syntax),
            ("2008-07-10T00", Syntax),
            ("2008-07-10T00:00:00.Z", Syntax),
            ("2008-07-10T00:00:00X", Syntax),
            ("2008-07-10T00:00:00Zx", Syntax),
            ("2009-02-29T00:00:00Z", Range),
            ("2008-13-01T00:00:00Z", Range),
            ("2008-01-01T24:00:00Z", Range),
            ("0000-01-01T00:00:00Z", Range),
            ("0001-01-01T00:00:00+01:00", Range),
            ("9999-12-31T23:59:59-01:00", Range),
        ];
        for (input, error) in cases {
            assert_eq!(Timestamp::parse_iso(input), Err(error), "{input}");
        }
    }

    #[test]
    fn other_spellings() {
        let t = Timestamp::parse_iso("2022-06-27T15:25:14Z").unwrap();
        assert_eq!(t.rfc1123(), "Mon, 27 Jun 2022 15:25:14 GMT");
        assert_eq!(Timestamp::parse_rfc1123("Mon, 27 Jun 2022 15:25:14 GMT"), Ok(t));
        assert_eq!(t.iso7(), "2022-06-27T15:25:14.0000000Z");
        assert_eq!(t.us_date(), "06/27/2022 15:25:14");
        assert_eq!(t.unix_seconds(), 1_656_343_514);
        let day = Timestamp::parse_date_or_iso("2011-10-11").unwrap();
        assert_eq!(day.iso7(), "2011-10-11T00:00:00.0000000Z");
        for bad in ["", "Mon, 27 Jun 2022", "27 Jun 2022 15:25:14 GMT", "Mon, 27 Jun 2022 15:25:14"]
        {
            assert!(Timestamp::parse_rfc1123(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_and_ticks_agree(ticks in 0..=Timestamp::MAX.ticks()) {
            let t = Timestamp::from_ticks(ticks).unwrap();
            prop_assert_eq!(Timestamp::parse_iso(&t.to_string()), Ok(t));
            prop_assert_eq!(Timestamp::parse_iso(&t.iso7()), Ok(t));
            let trimmed = t.iso7().trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.').to_owned();
            prop_assert_eq!(t.to_string(), trimmed + "Z");
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            let _ = Timestamp::parse_iso(&text);
            let _ = Timestamp::parse_rfc1123(&text);
            let _ = Timestamp::parse_date_or_iso(&text);
        }
    }
}
