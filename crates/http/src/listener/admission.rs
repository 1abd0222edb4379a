//! Counts connections, overall and per address, and decides which of them make room for others.
//!
//! A connection is anonymous until one of its requests had a valid credential ([`authenticated`]). Anonymous connections
//! have a share of the listener and of their address. A connection beyond a share is still admitted if an idle
//! anonymous one can be closed for it: clients that open and abandon connections lose their own oldest ones. An
//! authenticated connection is never closed for another one. Connections of trusted proxies carry the requests of many
//! clients: they count as authenticated and have no limit per address.

use super::Limits;
use crate::telemetry::ListenerMetrics;
use rowhouse_types::{Network, limits};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections beyond a limit that are told so at a time; any more are just closed.
const COURTESIES: usize = 64;
/// Connections that were told to make room and are still open, at most. Bounds by how much the limit is exceeded.
const LEAVING_MAX: usize = 256;
/// A connection this young that has not sent a whole request yet is closed for others only if nothing else can be: its
/// client had no time to send anything.
const GRACE: Duration = Duration::from_secs(1);

/// Decides who may stay.
#[derive(Debug)]
pub(super) struct Admission {
    courtesies: Arc<Semaphore>,
    book: Arc<Book>,
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
    /// There are too many anonymous connections.
    Anonymous,
}

/// A place among the connections, free again when dropped.
#[derive(Debug)]
pub(super) struct Admitted(Arc<Standing>);

/// What is known of an open connection.
#[derive(Debug)]
pub(super) struct Standing {
    id: u64,
    address: IpAddr,
    opened: Instant,
    /// A request had a valid credential, or the peer is a trusted proxy.
    known: AtomicBool,
    /// A request is being answered.
    busy: AtomicBool,
    /// A request was answered.
    answered: AtomicBool,
    /// It has to make room for another one.
    evicted: AtomicBool,
    /// Wakes the connection when it has to end.
    pub(super) stop: Arc<Notify>,
    /// Permits for large heads of this address, and of all.
    heads: [Arc<Semaphore>; 2],
    book: Arc<Book>,
}

/// In the extensions of a request whose connection is anonymous so far.
#[derive(Clone, Debug)]
pub(super) struct Anonymous(pub(super) Arc<Standing>);

/// Reports that a request had a valid credential: its connection is no longer anonymous.
pub(crate) fn authenticated(request: &http::Extensions) {
    if let Some(Anonymous(connection)) = request.get() {
        connection.authenticate();
    }
}

/// All connections of a listener.
#[derive(Debug)]
struct Book {
    connections: usize,
    per_address: usize,
    anonymous: usize,
    anonymous_per_address: usize,
    trusted: Vec<Network>,
    heads: Arc<Semaphore>,
    metrics: Arc<ListenerMetrics>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    open: usize,
    /// Those among them that were told to make room.
    leaving: usize,
    /// Those among them that are anonymous and were not told to make room.
    anonymous: usize,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Debug)]
struct Address {
    open: usize,
    /// Anonymous connections that were not told to make room, the oldest first.
    anonymous: BTreeMap<u64, Arc<Standing>>,
    heads: Arc<Semaphore>,
}

impl Admission {
    pub(super) fn new(limits: &Limits, metrics: Arc<ListenerMetrics>) -> Self {
        let book = Book {
            connections: limits.connections,
            per_address: limits.connections_per_address,
            anonymous: (limits.connections / 2).max(1),
            anonymous_per_address: limits.anonymous_per_address,
            trusted: limits.trusted_proxies.clone(),
            heads: permits(limits::ANONYMOUS_HEADS_MAX),
            metrics,
            state: Mutex::default(),
        };
        Self { courtesies: permits(COURTESIES), book: Arc::new(book) }
    }

    /// Takes a place, for which an anonymous connection may have to go, or says why there is none.
    pub(super) fn admit(&self, peer: IpAddr) -> Result<Admitted, Refusal> {
        let book = &self.book;
        let trusted = book.trusted.iter().any(|network| network.contains(peer.to_canonical()));
        let address = origin(peer);
        let mut state = book.lock();
        book.make_room(&mut state, address, trusted).map_err(|reason| Refusal {
            reason,
            courtesy: Arc::clone(&self.courtesies).try_acquire_owned().ok(),
        })?;
        state.last_id += 1;
        state.open += 1;
        let id = state.last_id;
        let entry = state.addresses.entry(address).or_insert_with(|| Address {
            open: 0,
            anonymous: BTreeMap::new(),
            heads: permits(limits::ANONYMOUS_HEADS_PER_ADDRESS_MAX),
        });
        entry.open += 1;
        let standing = Arc::new(Standing {
            id,
            address,
            opened: Instant::now(),
            known: AtomicBool::new(trusted),
            busy: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            stop: Arc::default(),
            heads: [Arc::clone(&entry.heads), Arc::clone(&book.heads)],
            book: Arc::clone(book),
        });
        if !trusted {
            entry.anonymous.insert(id, Arc::clone(&standing));
            state.anonymous += 1;
            book.metrics.anonymous.fetch_add(1, Relaxed);
        }
        Ok(Admitted(standing))
    }
}

impl Book {
    /// Makes sure that one more connection from this address fits.
    fn make_room(&self, state: &mut State, from: IpAddr, trusted: bool) -> Result<(), Reason> {
        let of_address = state.addresses.get(&from);
        let (open, anonymous) = of_address.map_or((0, 0), |it| (it.open, it.anonymous.len()));
        if !trusted {
            let full = self.per_address <= open;
            if full || self.anonymous_per_address <= anonymous {
                let reason = if full { Reason::Address } else { Reason::Anonymous };
                // Its oldest connections make room; whatever else its clients do, others do not notice.
                return if self.evict(state, from, Haste::None) { Ok(()) } else { Err(reason) };
            }
        }
        let full = self.connections <= state.open - state.leaving;
        if full || (self.anonymous <= state.anonymous && !trusted) {
            let reason = if full { Reason::Overall } else { Reason::Anonymous };
            // The address with the most anonymous connections has the least claim to them.
            let most = state.addresses.iter().max_by_key(|(_, it)| it.anonymous.len());
            let Some((heaviest, count)) = most.map(|(at, it)| (*at, it.anonymous.len())) else {
                return Err(reason);
            };
            let haste = if anonymous < count { Haste::Newer } else { Haste::None };
            return if self.evict(state, heaviest, haste) { Ok(()) } else { Err(reason) };
        }
        Ok(())
    }

    /// Closes the oldest idle anonymous connection of an address; false if there is none.
    fn evict(&self, state: &mut State, from: IpAddr, haste: Haste) -> bool {
        if LEAVING_MAX <= state.leaving {
            return false;
        }
        let Some(address) = state.addresses.get_mut(&from) else { return false };
        let find =
            |new: bool| address.anonymous.values().find(|it| it.is_idle(new)).map(|it| it.id);
        let found = find(false).or_else(|| if haste == Haste::Newer { find(true) } else { None });
        let Some(standing) = found.and_then(|id| address.anonymous.remove(&id)) else {
            return false;
        };
        state.leaving += 1;
        state.anonymous -= 1;
        self.metrics.anonymous.fetch_sub(1, Relaxed);
        self.metrics.evicted.fetch_add(1, Relaxed);
        standing.evicted.store(true, Relaxed);
        standing.stop.notify_one();
        true
    }

    /// The state is consistent between any two of its statements, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether connections that had no time to send anything yet have to go, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    None,
    Newer,
}

impl Standing {
    /// Whether a request had a valid credential, or the peer is trusted.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    /// Whether it has to make room for another connection.
    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Relaxed)
    }

    /// A request is worked on from here on.
    pub(super) fn begin_work(&self) {
        self.busy.store(true, Relaxed);
    }

    /// The request was answered.
    pub(super) fn end_work(&self) {
        self.answered.store(true, Relaxed);
        self.busy.store(false, Relaxed);
    }

    /// The right to send a large head, once few others send one at the same time.
    pub(super) fn large_head(
        &self,
    ) -> impl Future<Output = [Option<OwnedSemaphorePermit>; 2]> + Send + 'static {
        let [of_address, of_all] = self.heads.clone();
        async move {
            let of_address = of_address.acquire_owned().await.ok();
            [of_address, of_all.acquire_owned().await.ok()]
        }
    }

    fn is_idle(&self, new: bool) -> bool {
        let waits = !self.busy.load(Relaxed);
        waits && (new || self.answered.load(Relaxed) || GRACE <= self.opened.elapsed())
    }

    fn authenticate(&self) {
        if self.known.swap(true, Relaxed) {
            return;
        }
        let mut state = self.book.lock();
        self.leave_anonymous(&mut state);
    }

    fn leave_anonymous(&self, state: &mut State) {
        let address = state.addresses.get_mut(&self.address);
        if address.is_some_and(|address| address.anonymous.remove(&self.id).is_some()) {
            state.anonymous -= 1;
            self.book.metrics.anonymous.fetch_sub(1, Relaxed);
        }
    }
}

impl Admitted {
    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.0
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let standing = &self.0;
        let mut state = standing.book.lock();
        standing.leave_anonymous(&mut state);
        state.open -= 1;
        if standing.is_evicted() {
            state.leaving -= 1;
        }
        if let Some(address) = state.addresses.get_mut(&standing.address) {
            address.open -= 1;
            if address.open == 0 {
                state.addresses.remove(&standing.address);
            }
        }
    }
}

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Overall => "too many connections",
            Self::Address => "too many connections from this address",
            Self::Anonymous => "too many connections without a valid credential",
        }
    }
}

fn permits(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
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

    fn admission(change: impl FnOnce(&mut Limits)) -> Admission {
        let mut limits = Limits::default();
        change(&mut limits);
        Admission::new(&limits, Arc::default())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn refused(admission: &Admission, address: IpAddr) -> Reason {
        admission.admit(address).unwrap_err().reason
    }

    /// A connection that had a request with a valid credential.
    fn known(admission: &Admission, address: IpAddr) -> Admitted {
        let admitted = admission.admit(address).unwrap();
        admitted.standing().authenticate();
        admitted
    }

    /// A connection whose requests had no valid credential.
    fn answered(admission: &Admission, address: IpAddr) -> Admitted {
        let admitted = admission.admit(address).unwrap();
        admitted.standing().begin_work();
        admitted.standing().end_work();
        admitted
    }

    #[test]
    fn places_come_back() {
        let admission = admission(|it| (it.connections, it.connections_per_address) = (2, 1));
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(ip);
        let first = known(&admission, a);
        assert_eq!(refused(&admission, a), Reason::Address);
        let second = known(&admission, b);
        assert_eq!(refused(&admission, c), Reason::Overall);
        drop(first);
        assert_eq!(refused(&admission, b), Reason::Address);
        let third = known(&admission, a);
        drop((second, third));
        let state = admission.book.lock();
        assert!(state.addresses.is_empty());
        assert_eq!((state.open, state.leaving, state.anonymous), (0, 0, 0));
    }

    #[test]
    fn few_are_told_at_a_time() {
        let (one, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let admission = admission(|it| (it.connections, it.connections_per_address) = (2, 1));
        let _first = known(&admission, one);
        let mut told: Vec<_> = (0..COURTESIES).map(|_| admission.admit(one).unwrap_err()).collect();
        assert!(told.iter().all(|refusal| refusal.courtesy.is_some()));
        assert!(admission.admit(one).unwrap_err().courtesy.is_none());
        let _second = known(&admission, other);
        assert!(admission.admit(other).unwrap_err().courtesy.is_none(), "one bound for both");
        told.pop();
        assert!(admission.admit(other).unwrap_err().courtesy.is_some());
    }

    /// Beyond its share an address loses its oldest anonymous connection; those of others and known ones stay.
    #[test]
    fn anonymous_connections_make_room() {
        let admission = admission(|it| it.anonymous_per_address = 2);
        let (one, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let kept = [known(&admission, one), answered(&admission, other)];
        let oldest = answered(&admission, one);
        let next = answered(&admission, one);
        let newest = answered(&admission, one);
        let evicted = |it: &Admitted| it.standing().is_evicted();
        assert!(evicted(&oldest) && !evicted(&next) && !evicted(&newest));
        assert!(!kept.iter().any(evicted));
        next.standing().begin_work();
        let another = answered(&admission, one);
        assert!(!evicted(&next), "a request is being answered");
        assert!(evicted(&newest));
        another.standing().begin_work();
        assert_eq!(refused(&admission, one), Reason::Anonymous);
        assert!(admission.admit(other).is_ok());
        next.standing().authenticate();
        assert!(admission.admit(one).is_ok(), "its place among the anonymous ones is free");
        drop((oldest, next, newest, another, kept));
        assert!(admission.book.lock().addresses.is_empty());
        assert_eq!(admission.book.metrics.anonymous.load(Relaxed), 0);
        assert_eq!(admission.book.metrics.evicted.load(Relaxed), 2);
    }

    /// However many addresses strangers have, somebody who has fewer connections than they have gets in.
    #[test]
    fn a_full_listener_takes_newcomers() {
        let admission = admission(|it| it.connections = 8);
        let strangers = ["10.0.0.1", "10.0.0.2"].map(ip);
        let crowd: Vec<_> = (0..4).map(|n| admission.admit(strangers[n % 2]).unwrap()).collect();
        assert_eq!(refused(&admission, strangers[0]), Reason::Anonymous, "all have just come");
        let newcomer = admission.admit(ip("10.0.0.3")).unwrap();
        assert_eq!(crowd.iter().filter(|it| it.standing().is_evicted()).count(), 1);
        newcomer.standing().authenticate();
        let regulars: Vec<_> = (0..7).map(|_| known(&admission, ip("10.0.0.4"))).collect();
        assert_eq!(crowd.iter().filter(|it| it.standing().is_evicted()).count(), 4);
        assert_eq!(refused(&admission, ip("10.0.0.5")), Reason::Overall, "none but known ones");
        drop((regulars, crowd, newcomer));
        assert!(admission.book.lock().addresses.is_empty());
    }

    #[test]
    fn proxies_have_no_limit_per_address() {
        let admission = admission(|it| {
            (it.connections_per_address, it.anonymous_per_address) = (1, 1);
            it.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        });
        let proxy: Vec<_> = (0..5).map(|_| admission.admit(ip("10.0.0.1")).unwrap()).collect();
        assert!(proxy.iter().all(|it| it.standing().is_known()));
        let _first = known(&admission, ip("192.0.2.1"));
        assert_eq!(refused(&admission, ip("192.0.2.1")), Reason::Address);
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
            assert_eq!(origin(ip(a)) == origin(ip(b)), same, "{a} {b}");
        }
    }
}
