//! Turns a request into one [`Operation`] that carries parsed types.
//!
//! In two steps, because the body is read only when it is known how large it may be: [`route`] looks at verb, path, options
//! and headers; [`operation`] adds the body. Every complaint about the form of a request arises here and nowhere later.

use super::error::Failure;
use crate::front::head::{Head, Headers};
use rowhouse_service_queue::{Metadata, QueueError, Receipt};
use rowhouse_types::{
    Grant, Guid, QueueAccess, QueueName, Service, ServicePropertiesUpdate, StoredPolicy, limits,
};
use rowhouse_wire::uri::{self, QueueResource};
use rowhouse_wire::version::ApiVersion;
use rowhouse_wire::xml::{self, XmlError};
use rowhouse_wire::{metadata, receipt};

/// Everything but the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// What needs no body.
    Bare(Bare),
    SetPolicies(QueueName),
    PutMessage(QueueName, Times),
    UpdateMessage(QueueName, Target, u64),
    SetProperties,
}

/// A request that is complete without a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bare {
    ListQueues(ListQueues),
    CreateQueue(QueueName, Metadata),
    DeleteQueue(QueueName),
    GetMetadata(QueueName),
    SetMetadata(QueueName, Metadata),
    GetPolicies(QueueName),
    GetMessages { queue: QueueName, limit: usize, hide_seconds: u64 },
    PeekMessages { queue: QueueName, limit: usize },
    DeleteMessage(QueueName, Target),
    ClearMessages(QueueName),
    GetProperties,
    GetStats,
}

/// Which message a client means. None if there is none that it could mean: an id that is no id, a receipt that nobody was
/// given.
pub(crate) type Target = Option<Receipt>;

/// A page of queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListQueues {
    pub(crate) prefix: Option<String>,
    pub(crate) marker: Option<String>,
    /// The queue to start with, from the marker.
    pub(crate) from: String,
    pub(crate) max_results: Option<usize>,
    /// Metadata are asked for.
    pub(crate) metadata: bool,
}

/// When a new message appears, and when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) hide_seconds: u64,
    /// Never without.
    pub(crate) live_seconds: Option<u64>,
}

/// What is asked, in types that need no further check.
#[derive(Debug)]
pub(crate) enum Operation {
    /// What needs no body.
    Bare(Bare),
    PutMessage(QueueName, Times, Box<str>),
    UpdateMessage(QueueName, Target, u64, Option<Box<str>>),
    SetPolicies(QueueName, Vec<StoredPolicy>),
    SetProperties(ServicePropertiesUpdate),
}

impl Operation {
    /// Whether it may read much: admitted separately.
    pub(crate) fn is_scan(&self) -> bool {
        matches!(self, Self::Bare(Bare::ListQueues(_)))
    }

    /// Bytes that the answer may have, where that may be much and cannot be refused any more once it is made.
    pub(crate) fn answer_bytes(&self) -> Option<usize> {
        match self {
            Self::Bare(Bare::GetMessages { limit, .. }) => {
                Some(xml::message::bytes_expected(*limit))
            }
            _ => None,
        }
    }
}

impl Bare {
    fn name(&self) -> &'static str {
        match self {
            Self::ListQueues(_) => "ListQueues",
            Self::CreateQueue(..) => "CreateQueue",
            Self::DeleteQueue(_) => "DeleteQueue",
            Self::GetMetadata(_) => "GetQueueMetadata",
            Self::SetMetadata(..) => "SetQueueMetadata",
            Self::GetPolicies(_) => "GetQueueAcl",
            Self::GetMessages { .. } => "GetMessages",
            Self::PeekMessages { .. } => "PeekMessages",
            Self::DeleteMessage(..) => "DeleteMessage",
            Self::ClearMessages(_) => "ClearMessages",
            Self::GetProperties => "GetQueueServiceProperties",
            Self::GetStats => "GetQueueServiceStats",
        }
    }

    fn is_write(&self) -> bool {
        match self {
            Self::ListQueues(_)
            | Self::GetMetadata(_)
            | Self::GetPolicies(_)
            | Self::PeekMessages { .. }
            | Self::GetProperties
            | Self::GetStats => false,
            Self::CreateQueue(..)
            | Self::DeleteQueue(_)
            | Self::SetMetadata(..)
            | Self::GetMessages { .. }
            | Self::DeleteMessage(..)
            | Self::ClearMessages(_) => true,
        }
    }
}

impl Route {
    /// Its name in metrics and logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Bare(bare) => bare.name(),
            Self::SetPolicies(_) => "SetQueueAcl",
            Self::PutMessage(..) => "PutMessage",
            Self::UpdateMessage(..) => "UpdateMessage",
            Self::SetProperties => "SetQueueServiceProperties",
        }
    }

    /// Whether anything may change: refused at the secondary. To get messages is to hide them.
    pub(crate) fn is_write(&self) -> bool {
        match self {
            Self::Bare(bare) => bare.is_write(),
            Self::SetPolicies(_)
            | Self::PutMessage(..)
            | Self::UpdateMessage(..)
            | Self::SetProperties => true,
        }
    }

    /// Asks the grant before the body is read and before room is kept for an answer, so that who may not write cannot
    /// make the server read, and who may not take keeps nothing from others.
    pub(crate) fn check(&self, grant: &Grant) -> Result<(), Failure> {
        let (access, queue) = match self {
            Self::PutMessage(queue, _) => (QueueAccess::PutMessage, Some(queue)),
            Self::UpdateMessage(queue, ..) => (QueueAccess::UpdateMessage, Some(queue)),
            Self::SetPolicies(queue) => (QueueAccess::QueuePolicies, Some(queue)),
            Self::SetProperties => (QueueAccess::WriteService, None),
            Self::Bare(Bare::GetMessages { queue, .. }) => (QueueAccess::TakeMessages, Some(queue)),
            // The service asks for these, and reads nothing before.
            Self::Bare(_) => return Ok(()),
        };
        grant.check_queue(access, queue).map_err(|denied| QueueError::Denied(denied).into())
    }

    /// Largest body, in bytes; none where no body is meant.
    pub(crate) fn body_limit(&self) -> Option<usize> {
        match self {
            Self::PutMessage(..) | Self::UpdateMessage(..) => Some(limits::MESSAGE_BODY_BYTES_MAX),
            Self::SetPolicies(_) | Self::SetProperties => Some(limits::XML_BODY_BYTES_MAX),
            Self::Bare(_) => None,
        }
    }
}

/// Verb, path, options and headers; the body comes later.
pub(crate) fn route(head: &Head<'_>, account: &str, version: ApiVersion) -> Result<Route, Failure> {
    let resource = uri::parse_queue_resource(head.path)?;
    let queue = resource.queue().map(|name| QueueName::new(name).map_err(Failure::Name));
    let queue = queue.transpose()?;
    once_each(head)?;
    let comp = option(head, "comp");
    let Some(queue) = queue else { return of_service(head, comp, account) };
    let bare = match (resource, head.method, comp) {
        (QueueResource::Queue(_), "PUT", None) => Bare::CreateQueue(queue, pairs(head)?),
        (QueueResource::Queue(_), "DELETE", None) => Bare::DeleteQueue(queue),
        (QueueResource::Queue(_), "GET" | "HEAD", Some("metadata")) => Bare::GetMetadata(queue),
        (QueueResource::Queue(_), "PUT", Some("metadata")) => {
            Bare::SetMetadata(queue, pairs(head)?)
        }
        (QueueResource::Queue(_), "GET" | "HEAD", Some("acl")) => Bare::GetPolicies(queue),
        (QueueResource::Queue(_), "PUT", Some("acl")) => return Ok(Route::SetPolicies(queue)),
        (QueueResource::Queue(_), "GET" | "HEAD" | "PUT" | "DELETE", comp)
            if !matches!(comp, Some("metadata" | "acl")) =>
        {
            return Err(unknown_comp(comp));
        }
        (QueueResource::Messages(_), "POST", _) => {
            return Ok(Route::PutMessage(queue, times(head, version)?));
        }
        (QueueResource::Messages(_), "GET", _) => messages(head, queue, version)?,
        (QueueResource::Messages(_), "DELETE", _) => match option(head, RECEIPT) {
            None => Bare::ClearMessages(queue),
            // Whoever has a receipt means one message: an id that got lost must not cost all of them.
            Some(receipt) => {
                let (value, reason) = (receipt.to_owned(), "The receipt comes without a message");
                return Err(Failure::Parameter { name: RECEIPT, value, reason });
            }
        },
        (QueueResource::Message { id, .. }, "PUT", _) => {
            let target = target(head, &id)?;
            let visibility = number(head, VISIBILITY)?.ok_or(Failure::Missing(VISIBILITY))?;
            let hide_seconds = in_range(VISIBILITY, visibility, 0, visibility_max(version))?;
            return Ok(Route::UpdateMessage(queue, target, hide_seconds));
        }
        (QueueResource::Message { id, .. }, "DELETE", _) => {
            Bare::DeleteMessage(queue, target(head, &id)?)
        }
        (QueueResource::Nothing(_), ..) => return Err(Failure::Nothing),
        _ => return Err(Failure::Verb),
    };
    Ok(Route::Bare(bare))
}

/// What is asked of the service itself.
fn of_service(head: &Head<'_>, comp: Option<&str>, account: &str) -> Result<Route, Failure> {
    let service = option(head, "restype") == Some("service");
    Ok(match (head.method, comp) {
        ("GET", Some("list")) => Route::Bare(Bare::ListQueues(list(head, account)?)),
        ("GET", Some("properties")) if service => Route::Bare(Bare::GetProperties),
        ("PUT", Some("properties")) if service => Route::SetProperties,
        ("GET", Some("stats")) if service => Route::Bare(Bare::GetStats),
        (_, Some("properties" | "stats")) if service => return Err(Failure::Verb),
        (_, Some("list")) => return Err(Failure::Verb),
        (_, comp) => return Err(unknown_comp(comp)),
    })
}

/// The whole request, with its body.
pub(crate) fn operation(
    route: Route,
    body: &[u8],
    version: ApiVersion,
) -> Result<Operation, Failure> {
    Ok(match route {
        Route::PutMessage(queue, times) => {
            Operation::PutMessage(queue, times, text(body, version)?)
        }
        Route::UpdateMessage(queue, target, hide_seconds) => {
            let text = if body.is_empty() { None } else { Some(text(body, version)?) };
            Operation::UpdateMessage(queue, target, hide_seconds, text)
        }
        Route::SetPolicies(queue) => {
            let policies = xml::acl::read(body, Service::Queue);
            Operation::SetPolicies(queue, policies.map_err(|error| malformed(error, body))?)
        }
        Route::SetProperties => {
            let update = xml::service_properties::read(body, Service::Queue);
            Operation::SetProperties(update.map_err(|error| malformed(error, body))?)
        }
        Route::Bare(bare) => Operation::Bare(bare),
    })
}

/// The text of a message.
pub(crate) fn text(body: &[u8], version: ApiVersion) -> Result<Box<str>, Failure> {
    let text = xml::message::read(body).map_err(|error| malformed(error, body))?;
    let max = if version < ApiVersion::V2011_08_18 {
        limits::MESSAGE_BYTES_MAX_2009
    } else {
        limits::MESSAGE_BYTES_MAX
    };
    if max < text.len() {
        return Err(Failure::TextTooLarge(max));
    }
    Ok(text.into())
}

fn malformed(error: XmlError, body: &[u8]) -> Failure {
    Failure::Xml { error, fault: xml::fault(body) }
}

const VISIBILITY: &str = "visibilitytimeout";
const LIFE: &str = "messagettl";
const RECEIPT: &str = "popreceipt";

/// A signature joins the values of an option that is repeated: nobody could tell which one is meant.
fn once_each(head: &Head<'_>) -> Result<(), Failure> {
    const KNOWN: [&str; 12] = [
        "comp",
        "restype",
        "prefix",
        "marker",
        "maxresults",
        "include",
        "numofmessages",
        "peekonly",
        VISIBILITY,
        LIFE,
        RECEIPT,
        "timeout",
    ];
    for known in KNOWN {
        let mut values = head.query.iter().filter(|(name, _)| name.eq_ignore_ascii_case(known));
        let (first, second) = (values.next(), values.next());
        if let (Some(_), Some((_, value))) = (first, second) {
            let (value, reason) = (value.to_owned(), "The parameter is given more than once");
            return Err(Failure::Parameter { name: known, value, reason });
        }
    }
    Ok(())
}

/// An option by its name in lower case, which is what a signature makes of it: whoever writes `PeekOnly` peeks.
fn option<'a>(head: &'a Head<'_>, name: &str) -> Option<&'a str> {
    let mut named = head.query.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
    named.next().map(|(_, value)| value)
}

fn unknown_comp(comp: Option<&str>) -> Failure {
    let value = comp.unwrap_or_default().to_owned();
    Failure::Parameter { name: "comp", value, reason: "" }
}

fn pairs(head: &Head<'_>) -> Result<Metadata, Failure> {
    let Headers::Outer(map) = head.headers else { return Ok(Metadata::new()) };
    let names = head.spelling.map(|spelling| spelling.names(map)).unwrap_or_default();
    let headers = map.iter();
    let headers =
        headers.map(|(name, value)| (names.of(name.as_str(), value), value.to_str().ok()));
    Ok(metadata::read(headers)?)
}

fn list(head: &Head<'_>, account: &str) -> Result<ListQueues, Failure> {
    let own = |name| option(head, name).map(str::to_owned);
    let max_results = match number(head, "maxresults")? {
        None => None,
        Some(number) if number.value < 1 => {
            return Err(number.beyond("maxresults", 1, limits::QUEUES_PAGE_MAX as u64));
        }
        Some(number) => {
            let most = usize::try_from(number.value).unwrap_or(usize::MAX);
            Some(most.min(limits::QUEUES_PAGE_MAX))
        }
    };
    let from = match option(head, "marker") {
        None | Some("") => String::new(),
        Some(marker) => {
            let name = xml::queues::read_marker(account, marker).ok_or(Failure::Marker)?;
            name.to_owned()
        }
    };
    let include = option(head, "include").unwrap_or_default();
    let mut parts = include.split(',').map(str::trim).filter(|part| !part.is_empty());
    if let Some(part) = parts.clone().find(|part| !part.eq_ignore_ascii_case("metadata")) {
        return Err(Failure::Parameter { name: "include", value: part.to_owned(), reason: "" });
    }
    let metadata = parts.next().is_some();
    Ok(ListQueues { prefix: own("prefix"), marker: own("marker"), from, max_results, metadata })
}

/// Get or peek.
fn messages(head: &Head<'_>, queue: QueueName, version: ApiVersion) -> Result<Bare, Failure> {
    let most = limits::MESSAGES_MAX as u64;
    let limit = match number(head, "numofmessages")? {
        None => 1,
        Some(number) => in_range("numofmessages", number, 1, most)?,
    };
    let limit = usize::try_from(limit).unwrap_or(limits::MESSAGES_MAX);
    match option(head, "peekonly") {
        Some(value) if value.eq_ignore_ascii_case("true") => {
            return Ok(Bare::PeekMessages { queue, limit });
        }
        Some(value) if !value.eq_ignore_ascii_case("false") => {
            let value = value.to_owned();
            return Err(Failure::Parameter { name: "peekonly", value, reason: "" });
        }
        _ => {}
    }
    let hide_seconds = match number(head, VISIBILITY)? {
        None => limits::VISIBILITY_SECONDS_DEFAULT,
        Some(number) => in_range(VISIBILITY, number, 1, visibility_max(version))?,
    };
    Ok(Bare::GetMessages { queue, limit, hide_seconds })
}

fn visibility_max(version: ApiVersion) -> u64 {
    if version < ApiVersion::V2011_08_18 {
        limits::VISIBILITY_SECONDS_MAX_2009
    } else {
        limits::VISIBILITY_SECONDS_MAX
    }
}

/// When a new message appears and when it is gone.
pub(crate) fn times(head: &Head<'_>, version: ApiVersion) -> Result<Times, Failure> {
    let hide = match number(head, VISIBILITY)? {
        None => None,
        Some(number) => Some(in_range(VISIBILITY, number, 0, limits::VISIBILITY_SECONDS_MAX)?),
    };
    let hide_seconds = hide.unwrap_or(0);
    let Some(wanted) = number(head, LIFE)? else {
        let live_seconds = Some(limits::MESSAGE_LIFE_SECONDS_DEFAULT);
        return Ok(Times { hide_seconds, live_seconds });
    };
    if version < ApiVersion::V2017_07_29 {
        let live = in_range(LIFE, wanted, 1, limits::MESSAGE_LIFE_SECONDS_DEFAULT)?;
        return together(hide, live);
    }
    if wanted.value == -1 {
        return Ok(Times { hide_seconds, live_seconds: None });
    }
    match u64::try_from(wanted.value) {
        Ok(live @ 1..=limits::MESSAGE_LIFE_SECONDS_MAX) => together(hide, live),
        _ => Err(Failure::Parameter {
            name: LIFE,
            value: wanted.text.to_owned(),
            reason: "messagettl must be -1 or greater than 0",
        }),
    }
}

/// A message must appear before it is gone.
fn together(hide: Option<u64>, live: u64) -> Result<Times, Failure> {
    let hide_seconds = hide.unwrap_or(0);
    if live <= hide_seconds {
        return Err(Failure::Parameter {
            name: VISIBILITY,
            value: hide_seconds.to_string(),
            reason: "messagettl must be greater than visibilitytimeout",
        });
    }
    Ok(Times { hide_seconds, live_seconds: Some(live) })
}

/// The message of that id with the receipt of the request.
pub(crate) fn target(head: &Head<'_>, id: &str) -> Result<Target, Failure> {
    let text = option(head, RECEIPT).ok_or(Failure::Missing(RECEIPT))?;
    let receipt = receipt::decode(text).map_err(|_| Failure::Parameter {
        name: RECEIPT,
        value: text.to_owned(),
        reason: "Invalid pop receipt format",
    })?;
    let named = Guid::parse(id).zip(receipt);
    Ok(named.map(|(id, receipt)| Receipt { id, receipt }))
}

/// A number of the query, as it was written too.
#[derive(Clone, Copy)]
struct Number<'a> {
    value: i64,
    text: &'a str,
}

impl Number<'_> {
    fn beyond(self, name: &'static str, min: u64, max: u64) -> Failure {
        Failure::Range { name, value: self.text.to_owned(), min, max }
    }
}

fn number<'a>(head: &'a Head<'_>, name: &'static str) -> Result<Option<Number<'a>>, Failure> {
    let Some(text) = option(head, name) else { return Ok(None) };
    let (digits, beyond) = match text.strip_prefix('-') {
        Some(digits) => (digits, i64::MIN),
        None => (text, i64::MAX),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::Parameter { name, value: text.to_owned(), reason: "Not a number" });
    }
    // However long, it is a number, and out of every range.
    Ok(Some(Number { value: text.parse().unwrap_or(beyond), text }))
}

fn in_range(name: &'static str, number: Number<'_>, min: u64, max: u64) -> Result<u64, Failure> {
    match u64::try_from(number.value) {
        Ok(value) if min <= value && value <= max => Ok(value),
        _ => Err(number.beyond(name, min, max)),
    }
}
