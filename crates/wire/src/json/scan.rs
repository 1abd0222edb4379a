//! Looks for the bytes that matter inside JSON strings, eight at a time, since most text has none.

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Where the next byte is that cannot stand in a JSON string as it is: a quote, a backslash or a control
/// character. The length if there is none.
pub(crate) fn special(bytes: &[u8], from: usize) -> usize {
    find(bytes, from, special_marks, |byte| byte < 0x20 || byte == b'"' || byte == b'\\')
}

/// Where the next byte is that is special or not ASCII; the length if there is none.
pub(crate) fn special_or_foreign(bytes: &[u8]) -> usize {
    let marks = |word| special_marks(word) | (word & TOPS);
    find(bytes, 0, marks, |byte| !(0x20..0x80).contains(&byte) || byte == b'"' || byte == b'\\')
}

/// Marks the top bit of the first special byte of a word. Bits before it are clear, bits after it may be wrong.
fn special_marks(word: u64) -> u64 {
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & TOPS;
    below(word, 0x20) | below(word ^ (ONES * 0x22), 1) | below(word ^ (ONES * 0x5C), 1)
}

#[inline]
fn find(
    bytes: &[u8],
    from: usize,
    marks: impl Fn(u64) -> u64,
    wanted: impl Fn(u8) -> bool,
) -> usize {
    let mut rest = &bytes[from..];
    while let Some((word, after)) = rest.split_first_chunk() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return bytes.len() - rest.len() + (marks.trailing_zeros() / 8) as usize;
        }
        rest = after;
    }
    let at = bytes.len() - rest.len();
    at + rest.iter().position(|&byte| wanted(byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_look_at_every_byte_finds(
            bytes in prop::collection::vec(
                prop_oneof![8 => 0x1Du8..0x60, 1 => any::<u8>(), 20 => Just(b'a')],
                0..40,
            ),
            from: prop::sample::Index,
        ) {
            let from = from.index(bytes.len() + 1);
            let is_special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
            let expected = bytes[from..].iter().position(is_special);
            prop_assert_eq!(special(&bytes, from), expected.map_or(bytes.len(), |at| from + at));
            let expected = bytes.iter().position(|byte| is_special(byte) || !byte.is_ascii());
            prop_assert_eq!(special_or_foreign(&bytes), expected.unwrap_or(bytes.len()));
        }
    }
}
