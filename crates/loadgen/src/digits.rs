//! Numbers as text at the least cost, because a light client writes several in each request.

/// Appends a number.
pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    push_padded(out, number, 1);
}

/// Appends a number with zeros in front, so that texts sort as the numbers do. A number that is longer than
/// the width keeps all its digits.
pub(crate) fn push_padded(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || digits.len() - at < width.min(digits.len()) {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_numbers() {
        let cases = [
            (0, 1, "0"),
            (7, 1, "7"),
            (7, 3, "007"),
            (1234, 3, "1234"),
            (u64::MAX, 1, "18446744073709551615"),
            (u64::MAX, 99, "18446744073709551615"),
        ];
        for (number, width, expected) in cases {
            let mut out = Vec::new();
            push_padded(&mut out, number, width);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
