//! `rowhouse queue`: the queues of an account, by hand.

use crate::columns::{self, fitted, printable};
use crate::progress::Status;
use crate::sas::duration;
use crate::service::Service;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use rowhouse_client::{Client, Life, NewMessage, TakenMessage, TransferError};
use rowhouse_types::{QueueName, Timestamp};
use serde_json::json;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// List queues; look at, put, take, delete and move messages.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueueCommand {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rowhouse queue list
  rowhouse queue put jobs 'resize picture 7' --create
  rowhouse queue peek jobs
  rowhouse queue take jobs --delete
  rowhouse queue move jobs-poison jobs";

#[derive(Debug, Subcommand)]
enum Action {
    List(List),
    Peek(Peek),
    Put(Put),
    Take(Take),
    Clear(Clear),
    Move(Move),
}

/// List the queues of the account, and about how many messages each has.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// Show the first messages of a queue without taking them.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Peek {
    /// The queue.
    queue: String,

    /// Most messages.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=32))]
    top: u16,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    service: Service,
}

/// Put a message into a queue.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Put {
    /// The queue.
    queue: String,

    /// The message; - reads it from standard input.
    text: String,

    /// When it expires, such as 7d, 12h, 90m or 45s from now, or never. Default: 7 days.
    #[arg(long, value_name = "TIME", value_parser = life)]
    expires: Option<Life>,

    /// How long nobody sees it. Default: not at all.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,

    /// Encode it in Base64, as some SDKs expect.
    #[arg(long)]
    base64: bool,

    /// Make the queue if it is not there.
    #[arg(long)]
    create: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// Take messages: others do not see them for a while, and then they are back unless they were deleted.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Take {
    /// The queue.
    queue: String,

    /// Most messages.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    top: u16,

    /// How long they are hidden.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    hide: Duration,

    /// Delete them after they were printed.
    #[arg(long)]
    delete: bool,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    service: Service,
}

/// Delete all messages of a queue.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Clear {
    /// The queue.
    queue: String,

    /// Needed, since it cannot be undone.
    #[arg(long)]
    yes: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// Move messages from one queue to another, such as from a poison queue back.
///
/// No message is lost: each is put into the other queue before it is deleted. One that is interrupted in between is in
/// both queues, so a message arrives at least once. Text and expiry stay; id, insertion time and dequeue count are new.
/// No more messages are moved than there were at the beginning; hidden ones stay.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Move {
    /// The queue that the messages are in.
    from: String,

    /// The queue that they are put into.
    to: String,

    /// Most messages. Default: as many as there are.
    #[arg(long, value_name = "N")]
    top: Option<u64>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// How messages are printed.
#[derive(Debug, Args)]
struct Shape {
    /// Decode texts from Base64, which some SDKs encode them in.
    #[arg(long)]
    base64: bool,

    /// Print a JSON object a line.
    #[arg(long)]
    json: bool,
}

impl QueueCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::List(list) => list.run(),
            Action::Peek(peek) => peek.run(),
            Action::Put(put) => put.run(),
            Action::Take(take) => take.run(),
            Action::Clear(clear) => clear.run(),
            Action::Move(moving) => moving.run(),
        }
    }
}

/// Names that could be meant for something else are refused before anything is asked.
pub(crate) fn check_queue(name: &str) -> Result<(), Failure> {
    name.parse::<QueueName>().map(drop).map_err(|_| {
        format!(
            "{name:?} is not the name of a queue: those are 3 to 63 lower-case letters, digits and single hyphens"
        )
    })
}

fn client(service: &Service) -> Result<Client, Failure> {
    transfer::client(&service.queue_target()?)
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let client = client(&self.service)?;
        let queues = transfer::run(&client, async {
            let mut queues = Vec::new();
            for name in client.queues().await? {
                match client.message_count(&name).await {
                    Ok(count) => queues.push((name, count)),
                    // It was deleted meanwhile.
                    Err(error) if error.status() == Some(404) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(queues)
        })?;
        if self.json {
            let list: Vec<_> = queues
                .iter()
                .map(|(name, count)| json!({ "name": name, "messages": count }))
                .collect();
            output::print(&format!("{}\n", json!(list)));
        } else if !queues.is_empty() {
            let rows: Vec<_> =
                queues.into_iter().map(|(name, count)| vec![name, count.to_string()]).collect();
            output::print(&output::table(&["NAME", " MESSAGES"], &rows));
        }
        Ok(())
    }
}

impl Peek {
    fn run(self) -> Result<(), Failure> {
        check_queue(&self.queue)?;
        let client = client(&self.service)?;
        let peeked =
            transfer::run(&client, async { Ok(client.peek(&self.queue, self.top.into()).await?) })?;
        self.shape.print(peeked)
    }
}

impl Take {
    fn run(self) -> Result<(), Failure> {
        check_queue(&self.queue)?;
        let client = client(&self.service)?;
        let (queue, top) = (&self.queue, usize::from(self.top));
        let taken =
            transfer::run(&client, async { Ok(client.take(queue, top, self.hide).await?) })?;
        self.shape.print(taken.clone())?;
        if self.delete {
            let kept = transfer::run(&client, async {
                let mut kept = 0;
                for message in &taken {
                    kept += u64::from(!client.delete_message(queue, message).await?);
                }
                Ok(kept)
            })?;
            if 0 < kept {
                let messages = output::counted(kept, "message was", "messages were");
                return Err(format!("{messages} taken by somebody else before it was deleted"));
            }
        }
        Ok(())
    }
}

impl Put {
    fn run(self) -> Result<(), Failure> {
        check_queue(&self.queue)?;
        let client = client(&self.service)?;
        let mut text = self.text;
        if text == "-" {
            text.clear();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| format!("cannot read standard input: {error}"))?;
        }
        if self.base64 {
            text = STANDARD.encode(text);
        }
        let new = NewMessage { text, life: self.expires, hidden: self.delay.unwrap_or_default() };
        let queue = &self.queue;
        let id = transfer::run_hinting(&client, "; --create makes it", async {
            if self.create {
                client.create_queue(queue).await?;
            }
            Ok(client.put(queue, &new).await?)
        })?;
        output::print(&if self.json {
            format!("{}\n", json!({ "queue": queue, "id": id }))
        } else {
            format!("Put the message {id} into {queue}.\n")
        });
        Ok(())
    }
}

impl Clear {
    fn run(self) -> Result<(), Failure> {
        check_queue(&self.queue)?;
        let queue = &self.queue;
        if !self.yes {
            return Err(format!("this deletes all messages of {queue}: say so with --yes"));
        }
        let client = client(&self.service)?;
        transfer::run(&client, async { Ok(client.clear(queue).await?) })?;
        output::print(&if self.json {
            format!("{}\n", json!({ "queue": queue, "cleared": true }))
        } else {
            format!("Deleted all messages of {queue}.\n")
        });
        Ok(())
    }
}

impl Move {
    fn run(self) -> Result<(), Failure> {
        let Self { from, to, top, json, service } = self;
        check_queue(&from)?;
        check_queue(&to)?;
        if from == to {
            return Err("the messages are in that queue already: name two queues".to_owned());
        }
        let client = client(&service)?;
        let now = || {
            Timestamp::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
        };
        let done = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&done);
        let counted = |count| output::counted(count, "message", "messages");
        let moved = {
            let _shown = Shown::with(move |_| Status {
                text: output::counted(shown.load(Ordering::Relaxed), "message", "messages"),
                share: None,
            });
            let so_far = Arc::clone(&done);
            let moving = async {
                let report =
                    |moved: &rowhouse_client::Moved| done.store(moved.moved, Ordering::Relaxed);
                client.move_messages(&from, &to, top, now, report).await.map_err(
                    |(moved, error)| {
                        if 0 < moved.moved {
                            eprintln!(
                                "rowhouse: moved {} before this happened:",
                                counted(moved.moved)
                            );
                        }
                        TransferError::from(error)
                    },
                )
            };
            transfer::run_until_stopped(&client, "", moving, || {
                format!(
                    "stopped after {}: the same command goes on; those that were under way are visible again in \
                     two minutes, and may be in both queues",
                    counted(so_far.load(Ordering::Relaxed))
                )
            })?
        };
        output::print(&if json {
            format!("{}\n", json!({ "moved": moved.moved, "maybeTwice": moved.doubtful }))
        } else {
            format!("Moved {} from {from} to {to}.\n", counted(moved.moved))
        });
        if 0 < moved.doubtful {
            eprintln!(
                "rowhouse: {} may be in both queues: somebody else took them meanwhile",
                counted(moved.doubtful)
            );
        }
        Ok(())
    }
}

impl Shape {
    fn print(&self, mut messages: Vec<TakenMessage>) -> Result<(), Failure> {
        if self.base64 {
            for message in &mut messages {
                let bytes = STANDARD.decode(message.text.trim()).map_err(|_| {
                    format!("the message {} is not in Base64: leave --base64 out", message.id)
                })?;
                message.text = String::from_utf8_lossy(&bytes).into_owned();
            }
        }
        if self.json {
            let line = |message: &TakenMessage| format!("{}\n", json!(message));
            output::print(&messages.iter().map(line).collect::<String>());
            return Ok(());
        }
        if messages.is_empty() {
            eprintln!("There is no visible message.");
            return Ok(());
        }
        let head = ["ID", "PUT", "EXPIRES", "TAKEN", "TEXT"].map(str::to_owned);
        let row = |message: &TakenMessage| {
            let times = format!("{}x", message.dequeue_count);
            let texts = [&message.id, &message.inserted, &message.expires, &times, &message.text];
            texts.iter().map(|text| printable(text)).collect()
        };
        let rows: Vec<Vec<String>> = messages.iter().map(row).collect();
        output::print(&fitted(&head, &rows, columns::terminal_width()).0);
        Ok(())
    }
}

/// `7d`, or `never`.
fn life(text: &str) -> Result<Life, String> {
    if text == "never" {
        return Ok(Life::Forever);
    }
    match duration(text) {
        Ok(time) if !time.is_zero() => Ok(Life::For(time)),
        _ => Err("must be a time such as 7d, 12h, 90m or 45s, or never".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives() {
        assert_eq!(life("never"), Ok(Life::Forever));
        assert_eq!(life("2m"), Ok(Life::For(Duration::from_mins(2))));
        assert!(life("0s").is_err() && life("soon").is_err());
    }

    #[test]
    fn names() {
        assert_eq!(check_queue("jobs-2"), Ok(()));
        for name in ["", "Jobs", "a--b", "-ab", "jobs/messages"] {
            assert!(check_queue(name).unwrap_err().contains("name of a queue"), "{name}");
        }
    }
}
