//! The options of a request that several operations have: filter, order, pages.

use super::super::error::Failure;
use super::Route;
use crate::front::head::Head;
use rowhouse_query::{Filter, FilterError, Order};
use rowhouse_service_table::{OrderPlace, Place, TableError};
use rowhouse_types::{Position, limits};
use rowhouse_wire::select::Select;
use rowhouse_wire::token;

/// The outcome of parsing a filter.
pub(crate) type ParsedFilter = Result<Option<Filter>, FilterError>;

/// The filter of a query, if it is too long for a task of the runtime to parse.
pub(crate) fn long_filter<'h>(route: &Route, head: &'h Head<'_>) -> Option<&'h str> {
    let text = if route.is_scan() { head.query.get("$filter") } else { None };
    text.filter(|text| limits::FILTER_INLINE_BYTES_MAX < text.len())
}

pub(crate) fn parse_filter(text: &str, strict: bool) -> ParsedFilter {
    if strict { Filter::parse_original(text) } else { Filter::parse(text) }
}

/// The filter, parsed here unless that was done before.
pub(super) fn filter(
    head: &Head<'_>,
    parsed: Option<ParsedFilter>,
    strict: bool,
) -> Result<Option<Filter>, Failure> {
    Ok(match (parsed, head.query.get("$filter")) {
        (Some(parsed), _) => parsed?,
        (None, Some(text)) => parse_filter(text, strict)?,
        (None, None) => None,
    })
}

pub(super) fn order(head: &Head<'_>) -> Result<Option<Order>, Failure> {
    Ok(match head.query.get("$orderby") {
        Some(text) => Order::parse(text)?,
        None => None,
    })
}

pub(super) fn flag(head: &Head<'_>, option: &str) -> Result<bool, Failure> {
    match head.query.get(option) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Failure::OptionValue),
    }
}

pub(super) fn select(head: &Head<'_>) -> Result<Option<Select>, Failure> {
    Ok(match head.query.get("$select") {
        Some(text) => Select::parse(text)?,
        None => None,
    })
}

pub(super) fn top(head: &Head<'_>) -> Result<usize, Failure> {
    let Some(text) = head.query.get("$top") else { return Ok(limits::PAGE_ITEMS_MAX) };
    match text.trim().parse::<usize>() {
        Ok(top) if top <= limits::PAGE_ITEMS_MAX => Ok(top),
        _ => Err(Failure::OptionValue),
    }
}

pub(super) fn token_of(head: &Head<'_>, name: &str) -> Result<Option<String>, Failure> {
    match head.query.get(name) {
        None | Some("") => Ok(None),
        Some(text) => token::decode(text).map(Some).ok_or(Failure::OptionValue),
    }
}

/// Where the page before ended: in the order that is asked for, and no other.
pub(super) fn place(head: &Head<'_>, order: Option<&Order>) -> Result<Option<Place>, Failure> {
    let given = |name| head.query.get(name).filter(|text| !text.is_empty());
    let (partition, row) = match (given("NextPartitionKey"), given("NextRowKey")) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(Failure::OptionValue),
        (Some(partition), row) => (partition, row),
    };
    let direction = order.map(Order::direction).unwrap_or_default();
    if let Some(property) = order.and_then(ordered_by)
        && let Some(token) = row.and_then(|row| token::OrderToken::decode(partition, row))
    {
        if token.direction != direction || *token.property != *property {
            return Err(TableError::OrderPlaceGone.into());
        }
        let token::OrderToken { index, entry, partition, row, .. } = token;
        let (entry, key) = (entry.into(), Position::before(&partition, &row));
        return Ok(Some(Place::Order(OrderPlace { index, entry, key })));
    }
    if matches!(order, Some(Order::Property { .. })) {
        return Err(TableError::OrderPlaceGone.into());
    }
    let key = |text| token::decode_in(direction, text).ok_or(Failure::OptionValue);
    let (partition, row) = (key(partition)?, row.map(key).transpose()?.unwrap_or_default());
    Ok(Some(Place::Key(Position::before(&partition, &row))))
}

/// The property that an answer in that order may be in the order of.
pub(crate) fn ordered_by(order: &Order) -> Option<&str> {
    match order {
        Order::Property { name, .. } => Some(name),
        Order::Keys { within_partition: true, .. } => Some("RowKey"),
        Order::Keys { .. } => None,
    }
}
