//! Networks of IP addresses, as `10.0.0.0/8` or a single address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Neither an address nor a network.
    #[error("{0:?} is neither an address nor a network such as 10.0.0.0/8 or fd00::/8")]
    Form(Box<str>),
    /// The address names a machine, the length a network: one of them is a mistake.
    #[error("{0:?} has bits beyond its length: write the first address of the network")]
    Beyond(Box<str>),
}

impl Network {
    /// Every IPv4 address.
    pub const EVERY_V4: Self =
        Self { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), bits: 0 };
    /// Every IPv6 address.
    pub const EVERY_V6: Self =
        Self { address: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), bits: 0 };

    /// Whether the address is in the network. An IPv4 address that is written as an IPv6 one counts as what it is.
    pub fn contains(self, address: IpAddr) -> bool {
        let (own, wide) = as_bits(self.address);
        let (other, other_wide) = as_bits(address.to_canonical());
        wide == other_wide && (own ^ other) & mask(self.bits, wide) == 0
    }
}

/// The bits of an address, the first ones first, and whether there are 128 of them.
fn as_bits(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, false),
        IpAddr::V6(address) => (address.to_bits(), true),
    }
}

fn mask(bits: u8, wide: bool) -> u128 {
    let most = if wide { 128 } else { 32 };
    let bits = u32::from(bits).min(most);
    u128::MAX.checked_shl(128 - bits).unwrap_or(0)
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let form = || NetworkError::Form(text.into());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| form())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            // Digits alone: a sign would be taken too.
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse::<u8>().ok().filter(|bits| *bits <= most).ok_or_else(form)?
            }
            Some(_) => return Err(form()),
        };
        let (value, wide) = as_bits(address);
        if value & !mask(bits, wide) != 0 {
            return Err(NetworkError::Beyond(text.into()));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_in_text() {
        let cases = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "203.0.113.9", false),
            ("::1", "::1", true),
            ("fd00::/8", "fdab::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
        ];
        for (network, address, inside) in cases {
            let found: Network = network.parse().unwrap();
            assert_eq!(found.contains(address.parse().unwrap()), inside, "{network} {address}");
            assert_eq!(found.to_string().parse(), Ok(found));
        }
        for text in
            ["", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0/8", "::1/129", "a", "10.0.0.0/", "/8"]
        {
            assert_eq!(text.parse::<Network>(), Err(NetworkError::Form(text.into())));
        }
        for text in ["10.1.0.0/8", "::1/64", "192.0.2.7/0"] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError::Beyond(text.into())));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_network_or_none(text in "[0-9a-f:./]{0,24}") {
            if let Ok(network) = text.parse::<Network>() {
                prop_assert_eq!(network.to_string().parse(), Ok(network));
            }
        }
    }
}
