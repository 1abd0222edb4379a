//! `rowhouse query`: entities of a table, to look at.

use crate::columns::{self, fitted, printable};
use crate::service::Service;
use crate::{Failure, output, transfer};
use clap::Args;
use rowhouse_client::{Client, Query, TransferError, WrittenEntity, WrittenValue};
use serde_json::Value;

/// Entities that are shown unless more are wanted.
const TOP: usize = 100;
/// Most entities of a page.
const PAGE: usize = 1000;
/// Columns that come first, if they are there.
const FIRST: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

/// Show entities of a table: as a table, or as a JSON object a line.
///
/// A value whose type the table would not show is written as in a filter: 5L is an Int64, 5.0 a Double, '5' a String.
/// The last line, on standard error, says how the server read the query.
///
/// 'rowhouse export' writes whole tables to files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct QueryCommand {
    /// The table.
    table: String,

    /// Only entities that pass this filter, such as "PartitionKey eq 'north' and Age gt 6".
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,

    /// Only these properties. The keys have to be named too.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    select: Vec<String>,

    /// The order, such as "Age desc"; by keys without it. Only Rowhouse has it.
    #[arg(long, value_name = "ORDER")]
    order: Option<String>,

    /// Most entities that are shown.
    #[arg(long, value_name = "N", default_value_t = TOP, conflicts_with_all = ["all", "count"])]
    top: usize,

    /// Show all entities, however many there are.
    #[arg(long, conflicts_with = "count")]
    all: bool,

    /// Print how many entities there are, and none of them. Only Rowhouse counts.
    #[arg(long, conflicts_with_all = ["select", "order"])]
    count: bool,

    /// Print a JSON object a line, in the form of an export.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

const EXAMPLES: &str = "Examples:
  rowhouse query People --filter \"PartitionKey eq 'north'\"
  rowhouse query People --select RowKey,Name,Age --order \"Age desc\" --top 10
  rowhouse query People --filter \"Age gt 6\" --count
  rowhouse query People --all --json | jq .Name";

/// What was read.
#[derive(Default)]
struct Found {
    plan: Option<Plan>,
    more: bool,
}

/// How all pages together were read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    text: String,
    examined: u64,
    returned: u64,
}

impl QueryCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        if self.count {
            return self.print_count(&client);
        }
        let most = if self.all { usize::MAX } else { self.top };
        if self.json {
            // Page by page: there may be many.
            let found = transfer::run_until_stopped(
                &client,
                "",
                self.read(&client, most, |page| output::try_print(&lines(&page)).is_ok()),
                || "stopped".to_owned(),
            )?;
            tell(&found, most);
            return Ok(());
        }
        let mut all = Vec::new();
        let found = transfer::run_until_stopped(
            &client,
            "",
            self.read(&client, most, |mut page| {
                all.append(&mut page);
                true
            }),
            || "stopped".to_owned(),
        )?;
        let (head, rows) = table(&all, &self.select);
        let (text, left_out) = fitted(&head, &rows, columns::terminal_width());
        if rows.is_empty() {
            eprintln!("No entity was found.");
        } else {
            output::print(&text);
        }
        if 0 < left_out {
            let properties = output::counted(left_out as u64, "property", "properties");
            eprintln!(
                "{properties} more than the terminal is wide: choose some with --select, or use --json"
            );
        }
        tell(&found, most);
        Ok(())
    }

    fn print_count(&self, client: &Client) -> Result<(), Failure> {
        let counted = transfer::run(client, async {
            Ok(client.count(&self.table, self.filter.as_deref()).await?)
        });
        let (count, plan) = counted?;
        output::print(&if self.json {
            format!("{}\n", serde_json::json!({ "count": count }))
        } else {
            format!("{count}\n")
        });
        if let Some(plan) = plan {
            eprintln!("plan: {plan}");
        }
        Ok(())
    }

    /// Reads pages until there are enough, or until nobody takes them.
    async fn read(
        &self,
        client: &Client,
        most: usize,
        mut take: impl FnMut(Vec<WrittenEntity>) -> bool,
    ) -> Result<Found, TransferError> {
        let select = (!self.select.is_empty()).then(|| self.select.join(","));
        let mut query =
            Query { filter: self.filter.clone(), select, order: self.order.clone(), top: None };
        let (mut found, mut place, mut left) = (Found::default(), None, most);
        while 0 < left {
            query.top = Some(left.min(PAGE));
            let page = client.page_as_written(&self.table, &query, place.as_ref()).await?;
            left = left.saturating_sub(page.entities.len());
            if let Some(plan) = &page.plan {
                found.plan.get_or_insert_default().add(plan);
            }
            place = page.next;
            found.more = place.is_some();
            if !take(page.entities) || place.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

/// The line below: how it was read, and whether there is more.
fn tell(found: &Found, most: usize) {
    if found.more {
        eprintln!("only the first {most}: there may be more, which --top N or --all shows");
    }
    if let Some(Plan { text, examined, returned }) = &found.plan {
        eprintln!("plan: {text}; examined={examined}; returned={returned}");
    }
}

impl Plan {
    /// `table-scan; examined=120; returned=3`
    fn add(&mut self, text: &str) {
        for part in text.split(';').map(str::trim) {
            let number = |rest: &str| rest.parse::<u64>().unwrap_or(0);
            if let Some(rest) = part.strip_prefix("examined=") {
                self.examined += number(rest);
            } else if let Some(rest) = part.strip_prefix("returned=") {
                self.returned += number(rest);
            } else if self.text.is_empty() {
                part.clone_into(&mut self.text);
            }
        }
    }
}

fn lines(entities: &[WrittenEntity]) -> String {
    let line = |entity| serde_json::to_string(entity).map(|line| line + "\n");
    entities.iter().filter_map(|entity| line(entity).ok()).collect()
}

/// Heads and cells: what was selected in that order, or else the keys, the Timestamp and all properties as they come.
fn table(entities: &[WrittenEntity], select: &[String]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut head: Vec<String> = select.iter().map(|name| name.trim().to_owned()).collect();
    if head.is_empty() {
        let names = || entities.iter().flat_map(|entity| entity.properties().map(|(name, _)| name));
        head.extend(
            FIRST
                .iter()
                .filter(|first| names().any(|name| name == **first))
                .map(|&name| name.to_owned()),
        );
        for name in names() {
            if !head.iter().any(|known| known == name) {
                head.push(name.to_owned());
            }
        }
    }
    let row = |entity: &WrittenEntity| {
        let cell = |name: &String| {
            let found = entity.properties().find(|(found, _)| found == name);
            match found {
                None => String::new(),
                // Of these everybody knows the type.
                Some((_, WrittenValue { value: Value::String(text), .. }))
                    if FIRST.contains(&name.as_str()) && !text.is_empty() =>
                {
                    printable(text)
                }
                Some((_, value)) => cell(value),
            }
        };
        head.iter().map(cell).collect()
    };
    let rows = entities.iter().map(row).collect();
    (head.iter().map(|name| printable(name)).collect(), rows)
}

/// A value as people read it; as in a filter where its type would not be seen.
fn cell(WrittenValue { value, edm }: WrittenValue<'_>) -> String {
    match (edm, value) {
        (Some("Edm.Int64"), Value::String(text)) => format!("{}L", printable(text)),
        // The service writes times with all their digits.
        (Some("Edm.DateTime"), Value::String(text)) => printable(&short_time(text)),
        (Some("Edm.Binary"), Value::String(text)) => format!("binary'{}'", printable(text)),
        (Some(_), Value::String(text)) => printable(text),
        (None, Value::String(text)) => {
            let text = printable(text);
            if is_like_another(&text) { format!("'{}'", text.replace('\'', "''")) } else { text }
        }
        (_, Value::Number(number)) if number.is_f64() || edm == Some("Edm.Double") => {
            let text = number.to_string();
            if text.contains(['.', 'e', 'E']) { text } else { text + ".0" }
        }
        (_, value) => value.to_string(),
    }
}

/// Whether a text could be taken for a value of another type, or for none.
fn is_like_another(text: &str) -> bool {
    let number = text.trim_end_matches('L');
    text.is_empty()
        || text != text.trim()
        || text.starts_with('\'')
        || matches!(text, "true" | "false" | "null")
        || number.parse::<f64>().is_ok()
        || (text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12]))
        || (text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T')
}

/// `2026-01-02T03:04:05.1234567Z` without zeros at its end.
fn short_time(text: &str) -> String {
    match text.strip_suffix('Z').and_then(|text| text.split_once('.')) {
        Some((time, digits)) => match digits.trim_end_matches('0') {
            "" => format!("{time}Z"),
            digits => format!("{time}.{digits}Z"),
        },
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_seen() {
        let entity: WrittenEntity = serde_json::from_str(
            r#"{"PartitionKey":"p","RowKey":"1","Timestamp":"2026-01-01T00:00:00.5Z","Timestamp@odata.type":"Edm.DateTime",
                "Name":"Ann","Small":5,"Big@odata.type":"Edm.Int64","Big":"5","Text":"5","Float":5.0,
                "Whole@odata.type":"Edm.Double","Whole":5,"Odd@odata.type":"Edm.Double","Odd":"NaN","Yes":true,"Said":"true",
                "Empty":"","At@odata.type":"Edm.DateTime","At":"2026-01-01T00:00:00.0000000Z","Bytes@odata.type":"Edm.Binary","Bytes":"AAE=",
                "Evil":"a\u001b[2J"}"#,
        )
        .unwrap();
        let (head, rows) = table(&[entity], &[]);
        let found: Vec<String> =
            head.iter().zip(&rows[0]).map(|(name, cell)| format!("{name}={cell}")).collect();
        let expected = [
            "PartitionKey=p",
            "RowKey=1",
            "Timestamp=2026-01-01T00:00:00.5Z",
            "Name=Ann",
            "Small=5",
            "Big=5L",
            "Text='5'",
            "Float=5.0",
            "Whole=5.0",
            "Odd=NaN",
            "Yes=true",
            "Said='true'",
            "Empty=''",
            "At=2026-01-01T00:00:00Z",
            "Bytes=binary'AAE='",
            "Evil=a\\u{1b}[2J",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn columns_come_in_the_order_that_was_selected() {
        let entities: Vec<WrittenEntity> = [r#"{"RowKey":"r","B":"b"}"#, r#"{"A":"a"}"#]
            .map(|text| serde_json::from_str(text).unwrap())
            .into();
        let select = ["A".to_owned(), "RowKey".to_owned()];
        let (head, rows) = table(&entities, &select);
        assert_eq!(head, ["A", "RowKey"]);
        assert_eq!(rows, [[String::new(), "r".to_owned()], ["a".to_owned(), String::new()]]);
        assert_eq!(table(&entities, &[]).0, ["RowKey", "B", "A"]);
    }

    #[test]
    fn plans_of_pages_are_one() {
        let mut plan = Plan::default();
        plan.add("index(Email,City); examined=5; returned=2");
        plan.add("index(Email,City); examined=7; returned=1");
        let expected = Plan { text: "index(Email,City)".to_owned(), examined: 12, returned: 3 };
        assert_eq!(plan, expected);
    }
}
