//! Numbers, texts and bytes inside a frame.

use rowhouse_types::Timestamp;

/// What is noticed when a field cannot be read.
pub(crate) type Offence = &'static str;

pub(crate) const SHORT: Offence = "a frame is shorter than what it holds";
const TEXT: Offence = "a text is not UTF-8";

/// Appends fields.
pub(crate) trait Put {
    fn put_u8(&mut self, number: u8);
    fn put_u16(&mut self, number: u16);
    fn put_u32(&mut self, number: u32);
    fn put_u64(&mut self, number: u64);
    /// A length of two bytes, then the bytes.
    fn put_short(&mut self, bytes: &[u8]);
    /// A length of four bytes, then the bytes.
    fn put_long(&mut self, bytes: &[u8]);
    /// One byte that says whether there is a value, then the value.
    fn put_option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T));
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, number: u8) {
        self.push(number);
    }

    fn put_u16(&mut self, number: u16) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u32(&mut self, number: u32) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_short(&mut self, bytes: &[u8]) {
        self.put_u16(
            u16::try_from(bytes.len()).expect("names and keys have limits far below this"),
        );
        self.extend_from_slice(bytes);
    }

    fn put_long(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("settings and records are far shorter"));
        self.extend_from_slice(bytes);
    }

    fn put_option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.put_u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }
}

/// Reads fields one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Offence> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Offence> {
        Ok(self.bytes(N)?.try_into().expect("as many as were asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Offence> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Offence> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Offence> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Offence> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn id(&mut self) -> Result<[u8; 16], Offence> {
        self.array()
    }

    pub(crate) fn digest(&mut self) -> Result<[u8; 32], Offence> {
        self.array()
    }

    pub(crate) fn short(&mut self) -> Result<&'a [u8], Offence> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    pub(crate) fn long(&mut self) -> Result<&'a [u8], Offence> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).map_err(|_| SHORT)?)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Offence> {
        str::from_utf8(self.short()?).map_err(|_| TEXT)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, Offence> {
        Timestamp::from_ticks(self.u64()?).ok_or("a time is out of range")
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Offence>,
    ) -> Result<Option<T>, Offence> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err("what says whether a value follows is neither 0 nor 1"),
        }
    }
}
