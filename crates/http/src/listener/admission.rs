//! Counts connections, overall and per address.

use super::Limits;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections beyond a limit that are told so at a time; any more are just closed.
const COURTESIES: usize = 64;

/// Decides who may stay.
#[derive(Debug)]
pub(super) struct Admission {
    overall: Arc<Semaphore>,
    courtesies: Arc<Semaphore>,
    addresses: Arc<Addresses>,
}

/// A connection that may not stay.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    /// A permit to tell the client, if few others are being told.
    pub(super) courtesy: Option<OwnedSemaphorePermit>,
}

/// Which limit a connection is beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The listener is full.
    Overall,
    /// The address has all the connections it may have.
    Address,
}

/// A place among the connections, free again when dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    _overall: OwnedSemaphorePermit,
    address: IpAddr,
    addresses: Arc<Addresses>,
}

#[derive(Debug)]
struct Addresses {
    max: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl Admission {
    pub(super) fn new(limits: &Limits) -> Self {
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            overall: permits(limits.connections),
            courtesies: permits(COURTESIES),
            addresses: Arc::new(Addresses {
                max: limits.connections_per_address,
                open: Mutex::default(),
            }),
        }
    }

    /// Takes a place, or says why there is none.
    pub(super) fn admit(&self, address: IpAddr) -> Result<Admitted, Refusal> {
        let Ok(overall) = Arc::clone(&self.overall).try_acquire_owned() else {
            return Err(self.refusal(Reason::Overall));
        };
        let address = origin(address);
        let mut open = self.addresses.lock();
        let count = open.entry(address).or_insert(0);
        if *count >= self.addresses.max {
            // Never inserted by this refusal: a limit of 0 makes no sense and still leaves no
            // trace.
            if *count == 0 {
                open.remove(&address);
            }
            return Err(self.refusal(Reason::Address));
        }
        *count += 1;
        drop(open);
        Ok(Admitted { _overall: overall, address, addresses: Arc::clone(&self.addresses) })
    }

    fn refusal(&self, reason: Reason) -> Refusal {
        Refusal { reason, courtesy: Arc::clone(&self.courtesies).try_acquire_owned().ok() }
    }
}

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Overall => "too many connections",
            Self::Address => "too many connections from this address",
        }
    }
}

impl Addresses {
    /// The map is consistent between any two of its statements, so a poisoned lock is still good.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.addresses.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or the network of an IPv6 one, since a single host
/// commonly owns a whole /64.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections: usize, connections_per_address: usize) -> Admission {
        Admission::new(&Limits { connections, connections_per_address, ..Limits::default() })
    }

    #[test]
    fn places_come_back() {
        let admission = admission(2, 1);
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap());
        let refused = |address| admission.admit(address).unwrap_err().reason;
        let first = admission.admit(a).unwrap();
        assert_eq!(refused(a), Reason::Address);
        let second = admission.admit(b).unwrap();
        assert_eq!(refused(c), Reason::Overall);
        drop(first);
        assert_eq!(refused(b), Reason::Address);
        let third = admission.admit(a).unwrap();
        drop((second, third));
        assert!(admission.addresses.lock().is_empty());
    }

    #[test]
    fn few_are_told_at_a_time() {
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let admission = admission(2, 1);
        let _first = admission.admit(one).unwrap();
        let mut told: Vec<_> = (0..COURTESIES).map(|_| admission.admit(one).unwrap_err()).collect();
        assert!(told.iter().all(|refusal| refusal.courtesy.is_some()));
        assert!(admission.admit(one).unwrap_err().courtesy.is_none());
        let _second = admission.admit(other).unwrap();
        assert!(admission.admit(other).unwrap_err().courtesy.is_none(), "one bound for both");
        told.pop();
        assert!(admission.admit(other).unwrap_err().courtesy.is_some());
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let cases = [
            ("2001:db8::1", "2001:db8::2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ];
        for (a, b, same) in cases {
            let equal = origin(a.parse().unwrap()) == origin(b.parse().unwrap());
            assert_eq!(equal, same, "{a} {b}");
        }
    }
}
