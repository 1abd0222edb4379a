//! Queues: what a person does with them by hand.
//!
//! A client of queues is a [`Client`] whose target is one ([`Target::queues`](crate::Target::queues)). A request that
//! fails for a passing reason is sent again: a message may be put twice, and one that was taken by an answer that got
//! lost is visible again after its time.

use crate::client::{Call, Client, path_of};
use crate::error::ClientError;
use crate::transport::Answer;
use http::Method;
use rowhouse_types::Timestamp;
use rowhouse_wire::xml::{message, queues};
use serde::Serialize;
use std::time::Duration;

/// Most messages of one request.
const MESSAGES_MAX: usize = 32;
/// A message that moves is hidden for so long: longer than putting and deleting a page of them takes.
const MOVING_TIME: Duration = Duration::from_mins(2);
/// From this year on a message never expires.
const NEVER: &str = "9999-12-31T00:00:00Z";

/// A message to be put.
#[derive(Clone, Debug, Default)]
pub struct NewMessage {
    /// What it says.
    pub text: String,
    /// How long it lives; as long as the service lets it if none.
    pub life: Option<Life>,
    /// How long nobody sees it.
    pub hidden: Duration,
}

/// How long a message lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// For so long.
    For(Duration),
    /// Until it is deleted.
    Forever,
}

/// A message as the service gives it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TakenMessage {
    /// Its id.
    pub id: String,
    /// When it was put.
    pub inserted: String,
    /// When it expires.
    pub expires: String,
    /// How often it was taken.
    pub dequeue_count: u32,
    /// When it is visible again, if it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<String>,
    /// What its taker needs to delete it, if it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pop_receipt: Option<String>,
    /// What it says.
    pub text: String,
}

/// What became of moving messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Are in the other queue.
    pub moved: u64,
    /// Those of them that may be in both queues: somebody else had taken them meanwhile.
    pub doubtful: u64,
}

impl TakenMessage {
    fn of(listed: message::ListedMessage) -> Self {
        let time = |text: &str| {
            let time = Timestamp::parse_rfc1123(text);
            // To the second, as the service says it.
            time.map_or_else(|_| text.to_owned(), |time| format!("{}Z", &time.iso7()[..19]))
        };
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            inserted: time(&listed.inserted),
            expires: time(&listed.expires),
            dequeue_count: listed.taken,
            visible: given(listed.visible).map(|text| time(&text)),
            pop_receipt: given(listed.receipt),
            id: listed.id,
            text: listed.text,
        }
    }

    /// How long it still lives.
    fn life(&self, now: Timestamp) -> Option<Life> {
        let expires = Timestamp::parse_iso(&self.expires).ok()?;
        if Timestamp::parse_iso(NEVER).is_ok_and(|never| never <= expires) {
            return Some(Life::Forever);
        }
        let ticks = expires.ticks().saturating_sub(now.ticks());
        Some(Life::For(Duration::from_secs(ticks.div_ceil(10_000_000).max(1))))
    }
}

impl Client {
    /// The names of all queues.
    pub async fn queues(&self) -> Result<Vec<String>, ClientError> {
        let (mut names, mut next) = (Vec::new(), None::<String>);
        loop {
            let call = Call::new(Method::GET, "/")
                .query("comp", Some("list"))
                .query("marker", next.take());
            let answer = self.ask(call).await?;
            let (page, marker) =
                queues::read(&answer.body).map_err(|error| self.foreign(&error))?;
            names.extend(page);
            match marker {
                Some(marker) => next = Some(marker),
                None => return Ok(names),
            }
        }
    }

    /// Makes a queue; false if it is there already.
    pub async fn create_queue(&self, queue: &str) -> Result<bool, ClientError> {
        let answer = self.ask(Call::new(Method::PUT, path_of(queue))).await?;
        Ok(answer.status == 201)
    }

    /// About how many messages a queue has, hidden ones included.
    pub async fn message_count(&self, queue: &str) -> Result<u64, ClientError> {
        let call = Call::new(Method::GET, path_of(queue)).query("comp", Some("metadata"));
        let answer = self.ask(call).await?;
        let count = answer.header("x-ms-approximate-messages-count");
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| self.foreign(&"the number of messages is missing"))
    }

    /// The first messages, which stay as they are.
    pub async fn peek(&self, queue: &str, most: usize) -> Result<Vec<TakenMessage>, ClientError> {
        let call = Call::new(Method::GET, messages(queue))
            .query("peekonly", Some("true"))
            .query("numofmessages", Some(most.min(MESSAGES_MAX).to_string()));
        let answer = self.ask(call).await?;
        self.listed(&answer)
    }

    /// Takes the first messages: nobody else sees them for so long.
    pub async fn take(
        &self,
        queue: &str,
        most: usize,
        hidden: Duration,
    ) -> Result<Vec<TakenMessage>, ClientError> {
        let call = Call::new(Method::GET, messages(queue))
            .query("numofmessages", Some(most.min(MESSAGES_MAX).to_string()))
            .query("visibilitytimeout", Some(hidden.as_secs().to_string()));
        let answer = self.ask(call).await?;
        self.listed(&answer)
    }

    /// Puts a message, and returns its id.
    pub async fn put(&self, queue: &str, new: &NewMessage) -> Result<String, ClientError> {
        let life = new.life.map(|life| match life {
            Life::For(time) => time.as_secs().to_string(),
            Life::Forever => "-1".to_owned(),
        });
        let hidden = (!new.hidden.is_zero()).then(|| new.hidden.as_secs().to_string());
        let mut call = Call::new(Method::POST, messages(queue))
            .query("messagettl", life)
            .query("visibilitytimeout", hidden)
            .body(message::write_text(&new.text));
        call.content_type = "application/xml";
        let answer = self.ask(call).await?;
        let put = self.listed(&answer)?.into_iter().next();
        put.map(|message| message.id).ok_or_else(|| self.foreign(&"the answer names no message"))
    }

    /// Deletes a message that was taken; false if somebody else has taken or deleted it meanwhile.
    pub async fn delete_message(
        &self,
        queue: &str,
        message: &TakenMessage,
    ) -> Result<bool, ClientError> {
        let path = format!("{}/{}", messages(queue), message.id);
        let call = Call::new(Method::DELETE, path).query("popreceipt", message.pop_receipt.clone());
        match self.ask(call).await {
            Err(error) if matches!(error.code(), "MessageNotFound" | "PopReceiptMismatch") => {
                Ok(false)
            }
            outcome => outcome.map(|_| true),
        }
    }

    /// Deletes all messages of a queue.
    pub async fn clear(&self, queue: &str) -> Result<(), ClientError> {
        self.ask(Call::new(Method::DELETE, messages(queue))).await.map(drop)
    }

    /// Moves messages from one queue to another, the first ones first, and no more than there were at the beginning.
    ///
    /// Each is put into the other queue before it is deleted here, so none is lost, whatever happens: one that is
    /// interrupted in between is in both queues. Texts and expiry stay; id, insertion time and dequeue count are new.
    pub async fn move_messages(
        &self,
        from: &str,
        to: &str,
        most: Option<u64>,
        now: impl Fn() -> Timestamp,
        report: impl Fn(&Moved),
    ) -> Result<Moved, (Moved, ClientError)> {
        let mut sum = Moved::default();
        let outcome = async {
            // A consumer may send them back at once: that must not go on for ever.
            let there = self.message_count(from).await?;
            let most = most.map_or(there, |most| most.min(there));
            // To be known before anything is hidden.
            self.message_count(to).await?;
            while sum.moved < most {
                let wanted = usize::try_from(most - sum.moved).unwrap_or(MESSAGES_MAX);
                let taken = self.take(from, wanted, MOVING_TIME).await?;
                if taken.is_empty() {
                    break;
                }
                for message in taken {
                    let life = message.life(now());
                    let new =
                        NewMessage { text: message.text.clone(), life, ..NewMessage::default() };
                    self.put(to, &new).await?;
                    sum.moved += 1;
                    sum.doubtful += u64::from(!self.delete_message(from, &message).await?);
                    report(&sum);
                }
            }
            Ok(())
        };
        match outcome.await {
            Ok(()) => Ok(sum),
            Err(error) => Err((sum, error)),
        }
    }

    fn listed(&self, answer: &Answer) -> Result<Vec<TakenMessage>, ClientError> {
        let list = message::read_list(&answer.body).map_err(|error| self.foreign(&error))?;
        Ok(list.into_iter().map(TakenMessage::of).collect())
    }
}

fn messages(queue: &str) -> String {
    path_of(queue) + "/messages"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_life() {
        let now = Timestamp::parse_iso("2026-01-01T00:00:00Z").unwrap();
        let expiring = |text: &str| TakenMessage {
            id: String::new(),
            inserted: String::new(),
            expires: text.to_owned(),
            dequeue_count: 0,
            visible: None,
            pop_receipt: None,
            text: String::new(),
        };
        let seconds = |count| Some(Life::For(Duration::from_secs(count)));
        assert_eq!(expiring("2026-01-01T00:01:00Z").life(now), seconds(60));
        assert_eq!(expiring("2025-01-01T00:01:00Z").life(now), seconds(1));
        assert_eq!(expiring("9999-12-31T23:59:59Z").life(now), Some(Life::Forever));
        assert_eq!(expiring("soon").life(now), None);
    }
}
