//! Changes of messages. Each is one statement, which says itself whether the queue and the message are there; so are
//! several that put messages into one queue, or bring them back.
//!
//! Whoever takes skips what others have in hand: nobody waits, and nobody gets what another one got.

use super::floor::Floors;
use super::{LAST, LIVE, NOW, Now, columns_of, instant, message, number, ticks};
use crate::fault::Fault;
use crate::pool::Session;
use crate::statement::{Typed, ask};
use crate::ticks::{SLOTS, Tick};
use rowhouse_store::{Conflict, Message, MessageAction, MessageCommand};
use rowhouse_types::{Guid, Timestamp, limits};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use tokio_postgres::types::Type;

/// Messages that one statement puts at most.
const PUT_MAX: usize = limits::BATCH_OPERATIONS_MAX;
/// Messages that one statement brings back at most.
const RESTORE_MAX: usize = 1000;
/// Messages that are taken at a time at most.
const TAKE_MAX: usize = 100_000;
const TICKS_PER_SECOND: u64 = 10_000_000;

/// A row without a message if there is just the queue, and none if there is no queue. The order of the places is that in
/// which they were found.
static TAKE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns_of("t");
    format!(
        "WITH next AS (
             SELECT m.id, m.visible FROM rowhouse.messages m
             WHERE m.qid = $1 AND m.qid + 0 = $1 AND m.visible BETWEEN $7 AND {NOW} AND m.expires > {NOW}
             ORDER BY m.visible, m.seq LIMIT $3 FOR UPDATE SKIP LOCKED
         ), chosen AS (
             SELECT array_agg(next.id) AS ids, min(next.visible) AS first FROM next
         ), taken AS (
             UPDATE rowhouse.messages m SET visible = least({NOW} + $4::bigint, {LAST}),
                 seq = $5::bigint + {SLOTS} * (array_position(chosen.ids, m.id) - 1),
                 receipt = {}, taken = m.taken + 1
             FROM chosen WHERE m.qid = $1 AND m.id = ANY(chosen.ids)
             RETURNING m.*
         )
         SELECT {columns}, t.seq, {NOW}, (SELECT chosen.first FROM chosen)
         FROM (SELECT q.qid FROM {LIVE}) AS q LEFT JOIN taken t ON true",
        receipt("$6", "$5")
    )
});
static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns_of("u");
    format!(
        "WITH u AS (
             UPDATE rowhouse.messages m SET visible = least({NOW} + $5::bigint, {LAST}), seq = $6,
                 receipt = {}, text = coalesce($7::bytea, m.text)
             WHERE m.qid = $1 AND m.id = $3 AND m.receipt = $4 AND m.expires > {NOW}
             RETURNING m.*
         )
         SELECT {columns} FROM (SELECT q.qid FROM {LIVE}) AS q LEFT JOIN u ON true",
        receipt("$8", "$6")
    )
});
static DELETE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH gone AS (
             DELETE FROM rowhouse.messages m
             WHERE m.qid = $1 AND m.id = $3 AND m.receipt = $4 AND m.expires > {NOW}
             RETURNING m.id
         )
         SELECT gone.id FROM (SELECT q.qid FROM {LIVE}) AS q LEFT JOIN gone ON true"
    )
});
static CLEAR: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH gone AS (DELETE FROM rowhouse.messages m WHERE m.qid = $1) SELECT q.qid FROM {LIVE}"
    )
});

/// The new receipt of a message, in a commit of that tick whose places have got that far: it rises, also where the clock of
/// another server is ahead, and stays what it is where this commit has made it.
fn receipt(tick: &str, place: &str) -> String {
    format!(
        "CASE WHEN m.receipt = {tick}::bigint AND m.seq BETWEEN {tick}::bigint AND {place}::bigint
                AND (m.seq - {tick}::bigint) % {SLOTS} = 0
            THEN m.receipt ELSE greatest({tick}::bigint, m.receipt + 1) END"
    )
}

/// How many ticks the commands need for the places of messages.
pub(crate) fn places(commands: &[MessageCommand]) -> i64 {
    let of = |command: &MessageCommand| match &command.action {
        MessageAction::Put { .. } | MessageAction::Update { .. } | MessageAction::Restore(_) => 1,
        MessageAction::Take { limit, .. } => clamped(*limit),
        MessageAction::Delete { .. } | MessageAction::Clear => 0,
    };
    commands.iter().map(of).sum()
}

/// Whether one statement does it all.
pub(crate) fn is_one_statement(commands: &[MessageCommand]) -> bool {
    steps(commands).count() <= 1
}

/// The latest receipt that is brought back.
pub(crate) fn latest_restored(commands: &[MessageCommand]) -> Option<Timestamp> {
    let receipts = commands.iter().filter_map(|command| match &command.action {
        MessageAction::Restore(message) => Some(message.receipt),
        _ => None,
    });
    receipts.max()
}

/// The commands, those together that one statement does.
fn steps(commands: &[MessageCommand]) -> impl Iterator<Item = &[MessageCommand]> {
    let alike = |a: &MessageCommand, b: &MessageCommand| {
        let together = matches!(
            (&a.action, &b.action),
            (MessageAction::Put { .. }, MessageAction::Put { .. })
                | (MessageAction::Restore(_), MessageAction::Restore(_))
        );
        together && a.queue == b.queue
    };
    let most = |step: &[MessageCommand]| match step[0].action {
        MessageAction::Restore(_) => RESTORE_MAX,
        _ => PUT_MAX,
    };
    commands.chunk_by(alike).flat_map(move |step| step.chunks(most(step)))
}

/// Runs the commands in order; what is told of messages. The ticks from the one given on belong to the places of messages, as
/// many as [`places`] says. A refusal names the command by its position.
pub(crate) async fn run(
    session: &Session,
    commands: &[MessageCommand],
    tick: Tick,
    context: Context<'_>,
) -> Result<Vec<Message>, Fault> {
    let Context { now, floors } = context;
    let (mut told, mut place, mut index) = (Vec::new(), tick.at, 0);
    for step in steps(commands) {
        let done = Step { session, tick: tick.at, place, now, floors }.run(step).await;
        told.extend(done.map_err(|fault| match fault {
            Fault::Rejected(_, reason) => Fault::Rejected(index, reason),
            other => other,
        })?);
        place += SLOTS * places(step);
        index += step.len();
    }
    Ok(told)
}

/// What changes of messages go by.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    /// Where to look for messages from; without, from the beginning.
    pub(crate) floors: Option<&'a Floors>,
}

/// One statement.
struct Step<'a> {
    session: &'a Session,
    /// For receipts.
    tick: i64,
    /// The first tick for places.
    place: i64,
    now: Now,
    floors: Option<&'a Floors>,
}

impl Step<'_> {
    async fn run(&self, commands: &[MessageCommand]) -> Result<Vec<Message>, Fault> {
        let queue = number(commands[0].queue);
        match &commands[0].action {
            MessageAction::Put { .. } => self.put(queue, commands).await,
            MessageAction::Restore(_) => self.restore(queue, commands).await.map(|()| Vec::new()),
            MessageAction::Take { limit, hide_seconds } => {
                self.take(queue, *limit, *hide_seconds).await
            }
            MessageAction::Update { id, receipt, hide_seconds, text } => {
                let text = text.as_deref().map(str::as_bytes);
                let (receipt, hide) = (ticks(*receipt), duration(*hide_seconds));
                let values: crate::pool::Values<'_> = &[
                    &queue,
                    &self.now.0,
                    &bytes(id),
                    &receipt,
                    &hide,
                    &self.place,
                    &text,
                    &self.tick,
                ];
                let row = self.session.row(&UPDATE, values).await?;
                let row = row.ok_or(Conflict::QueueNotFound)?;
                row.get::<_, Option<&[u8]>>(0).ok_or(Conflict::MessageNotFound)?;
                Ok(vec![message(&row, 0)?])
            }
            MessageAction::Delete { id, receipt } => {
                let values: crate::pool::Values<'_> =
                    &[&queue, &self.now.0, &bytes(id), &ticks(*receipt)];
                let row = self.session.row(&DELETE, values).await?;
                let row = row.ok_or(Conflict::QueueNotFound)?;
                row.get::<_, Option<&[u8]>>(0).ok_or(Conflict::MessageNotFound)?;
                Ok(Vec::new())
            }
            MessageAction::Clear => {
                let row = self.session.row(&CLEAR, &[&queue]).await?;
                row.ok_or(Conflict::QueueNotFound)?;
                Ok(Vec::new())
            }
        }
    }

    async fn take(&self, queue: i64, limit: usize, hide: u64) -> Result<Vec<Message>, Fault> {
        let (limit, hide) = (clamped(limit), duration(hide));
        let asked = self.floors.map(|floors| (floors, floors.ask(queue)));
        let from = asked.map_or(0, |(_, asked)| asked.from);
        let values: crate::pool::Values<'_> =
            &[&queue, &self.now.0, &limit, &hide, &self.place, &self.tick, &from];
        let mut rows = self.session.rows(&TAKE, values).await?;
        let first = rows.first().ok_or(Conflict::QueueNotFound)?;
        if let Some((floors, asked)) = asked {
            floors.learn(queue, asked, first.get(8), first.get(9));
        }
        if first.get::<_, Option<&[u8]>>(0).is_none() {
            return Ok(Vec::new());
        }
        rows.sort_by_key(|row| row.get::<_, i64>(7));
        rows.iter().map(|row| message(row, 0)).collect()
    }

    async fn put(&self, queue: i64, commands: &[MessageCommand]) -> Result<Vec<Message>, Fault> {
        let mut rows = Vec::with_capacity(commands.len());
        for (command, seq) in commands.iter().zip(self.places()) {
            if let MessageAction::Put { id, text, hide_seconds, live_seconds } = &command.action {
                let hide = duration(*hide_seconds);
                let live = duration(live_seconds.unwrap_or(u64::MAX));
                rows.push((id, &**text, text.as_bytes(), bytes(id), hide, live, seq));
            }
        }
        let mut values: Vec<Typed<'_>> =
            vec![(&queue, Type::INT8), (&self.now.0, Type::INT8), (&self.tick, Type::INT8)];
        for (_, _, text, id, hide, live, seq) in &rows {
            values.extend::<[Typed<'_>; 5]>([
                (id, Type::BYTEA),
                (hide, Type::INT8),
                (live, Type::INT8),
                (seq, Type::INT8),
                (text, Type::BYTEA),
            ]);
        }
        let written = ask(self.session, rows.len(), &putting(rows.len()), values).await?;
        let inserted = instant(written.first().ok_or(Fault::Unmet)?.get(0))?;
        let receipt = instant(self.tick)?;
        let told = |(id, text, _, _, hide, live, _): (&Guid, &str, _, _, i64, i64, _)| Message {
            id: *id,
            text: text.into(),
            inserted,
            expires: later(inserted, live),
            visible: later(inserted, hide),
            taken: 0,
            receipt,
        };
        Ok(rows.into_iter().map(told).collect())
    }

    async fn restore(&self, queue: i64, commands: &[MessageCommand]) -> Result<(), Fault> {
        // Of several with one id the last one stays.
        let mut last = HashMap::new();
        for (command, seq) in commands.iter().zip(self.places()) {
            if let MessageAction::Restore(message) = &command.action {
                last.insert(message.id, (message, seq));
            }
        }
        let rows: Vec<_> =
            last.into_values().map(|(message, seq)| Saved::of(message, seq)).collect();
        let mut values: Vec<Typed<'_>> = vec![(&queue, Type::INT8)];
        values.extend(rows.iter().flat_map(Saved::values));
        let restored = ask(self.session, rows.len(), &restoring(rows.len()), values).await;
        if let Some(floors) = self.floors {
            floors.forget(queue);
        }
        restored.map(drop)
    }

    /// Ticks for the places of messages.
    fn places(&self) -> impl Iterator<Item = i64> {
        let first = self.place;
        (0i64..).map(move |n| first + SLOTS * n)
    }
}

/// A message in columns.
struct Saved<'a> {
    id: &'a [u8],
    text: &'a [u8],
    /// `visible, seq, receipt, inserted, expires, taken`.
    numbers: [i64; 6],
}

impl<'a> Saved<'a> {
    fn of(message: &'a Message, seq: i64) -> Self {
        let Message { id, text, inserted, expires, visible, taken, receipt } = message;
        let [visible, receipt, inserted, expires] =
            [*visible, *receipt, *inserted, *expires].map(ticks);
        let numbers = [visible, seq, receipt, inserted, expires, i64::from(*taken)];
        Self { id: bytes(id), text: text.as_bytes(), numbers }
    }

    fn values(&self) -> impl Iterator<Item = Typed<'_>> {
        let texts: [Typed<'_>; 2] = [(&self.id, Type::BYTEA), (&self.text, Type::BYTEA)];
        let numbers = self.numbers.iter().map(|number| -> Typed<'_> { (number, Type::INT8) });
        texts.into_iter().chain(numbers)
    }
}

fn putting(rows: usize) -> String {
    let mut sql = "INSERT INTO rowhouse.messages AS m
        (qid, inserted, receipt, taken, id, visible, expires, seq, text) VALUES "
        .to_owned();
    for row in 0..rows {
        let at = 4 + 5 * row;
        // Asked once.
        let (between, queue) =
            if row == 0 { ("", "rowhouse.live_queue($1)") } else { (", ", "$1") };
        let _ = write!(
            sql,
            "{between}({queue}, {NOW}, $3, 0, ${at}, least({NOW} + ${}::bigint, {LAST}),
             least({NOW} + ${}::bigint, {LAST}), ${}, ${})",
            at + 1,
            at + 2,
            at + 3,
            at + 4
        );
    }
    sql.push_str(" RETURNING m.inserted");
    sql
}

fn restoring(rows: usize) -> String {
    let mut sql = "INSERT INTO rowhouse.messages AS m
        (qid, id, text, visible, seq, receipt, inserted, expires, taken) VALUES (rowhouse.live_queue($1), "
        .to_owned();
    sql.push_str(&crate::statement::tuples(rows, 2, 8, "), ($1, "));
    sql.push_str(
        ") ON CONFLICT (qid, id) DO UPDATE SET text = excluded.text, visible = excluded.visible, seq = excluded.seq,
         receipt = excluded.receipt, inserted = excluded.inserted, expires = excluded.expires, taken = excluded.taken",
    );
    sql
}

fn bytes(id: &Guid) -> &[u8] {
    &id.0
}

fn clamped(limit: usize) -> i64 {
    i64::try_from(limit.clamp(1, TAKE_MAX)).expect("it is small")
}

/// So many seconds in ticks, at most until the last instant.
fn duration(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(TICKS_PER_SECOND).min(Timestamp::MAX.ticks()))
        .expect("the last instant has a number")
}

/// Later by so many ticks, or the last instant.
fn later(time: Timestamp, by: i64) -> Timestamp {
    Timestamp::from_ticks(time.ticks().saturating_add(by.unsigned_abs())).unwrap_or(Timestamp::MAX)
}
