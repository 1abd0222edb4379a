//! Tables from a Rowhouse service to another service, and then every change of them.
//!
//! The place in each table's change feed is taken before its first entity is read, so nothing that is written
//! during the copy is lost. Afterwards the feed is followed from there. The state file keeps the place after
//! what is certain to be at the destination: who starts again hears the changes after it once more.
//!
//! **Nothing goes back.** What was copied, or made by an earlier run, may be later than a change that is heard now.
//! Until the end of the feed was reached once, a change is therefore made only if the source still has the entity
//! as the change left it; otherwise the feed has a later one. Of the changes in one answer the last one of each entity
//! is made.
//!
//! Memory is bounded by the number of jobs: each works on one answer of the feed at a time.

use crate::apply::Applier;
use crate::beside::{Note, Policies};
use crate::changes::{Change, ChangesPage, still_true};
use crate::client::Client;
use crate::copy::{Copy, Job};
use crate::error::{ClientError, TransferError};
use crate::following::{Following, Notice};
use crate::progress::Progress;
use crate::stop::Stop;
use rowhouse_types::StoredPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// How long the source is asked to wait for a change.
const WAIT: Duration = Duration::from_secs(20);
/// Tables whose next change is waited for at a time: a server lets no more than 256 requests wait.
const WAITING_MAX: usize = 64;
/// About how many changes the answer to a request that waits has.
const FIRST_CHANGES: usize = 32;
/// Where there are more tables than can be waited for, each is asked now and then: one every so often.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// How often new tables are looked for, and changed policies.
const LIST_EVERY: Duration = Duration::from_secs(10);
/// Before a service that did not answer is asked again, after all attempts of the client.
const PAUSE: Duration = Duration::from_secs(1);

/// What to copy and to follow.
#[derive(Clone, Debug)]
pub struct Watch {
    /// What is copied first.
    pub copy: Copy,
    /// End when every change is copied that was made before.
    pub until_caught_up: bool,
}

/// Where it stands at the end.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The tables that were copied.
    pub tables: Vec<String>,
    /// Whether all that was there at the beginning is copied.
    pub copied: bool,
}

impl Watch {
    /// Copies what is not copied yet and follows the changes, until it is asked to stop or has caught up.
    pub async fn run(
        &self,
        source: &Client,
        destination: &Client,
        progress: &Arc<Progress>,
        following: &Arc<Following>,
        stop: &Stop,
    ) -> Result<Watched, TransferError> {
        let job = self.copy.open(source, destination, progress, stop.clone())?;
        let tables = self.copy.names(source).await?;
        for table in &tables {
            take_place(&job, table).await?;
        }
        job.saved.save_now()?;
        let follower = Follower {
            job,
            following: following.clone(),
            until_caught_up: self.until_caught_up,
            working: Arc::new(Semaphore::new(self.copy.jobs.max(1))),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        };
        let outcome = self.copy_and_follow(&follower, &tables).await;
        // What is done is kept, whatever ended it.
        let copied = follower.job.saved.save_now().and(outcome)?;
        Ok(Watched { tables: following.names(), copied })
    }

    /// False if it was asked to stop before everything was copied.
    async fn copy_and_follow(
        &self,
        follower: &Follower,
        tables: &[String],
    ) -> Result<bool, TransferError> {
        let job = &follower.job;
        let resumed = tables.iter().all(|table| job.saved.is_copied(table));
        self.copy.copy_tables(job, tables).await?;
        follower.tell_notes();
        if job.stop.is_asked() {
            return Ok(false);
        }
        if self.copy.tables.is_empty() {
            let mut deleted = job.saved.followed();
            deleted.retain(|table| !tables.contains(table));
            for table in deleted {
                follower.following.tell(Notice::Deleted(table));
            }
        }
        let copied = (!resumed).then(|| job.saved.entities());
        follower.following.tell(Notice::Following { tables: tables.len(), copied });
        let mut all = All {
            watch: self,
            follower,
            running: JoinSet::new(),
            acls: BTreeMap::new(),
            refused: BTreeSet::new(),
        };
        all.follow(tables);
        all.run().await.map(|()| true)
    }
}

/// Takes the place in the change feed of a table, unless it was taken before.
async fn take_place(job: &Job, table: &str) -> Result<(), TransferError> {
    if job.saved.place(table).is_some() {
        return Ok(());
    }
    if job.saved.ranges(table).is_some() {
        return Err(TransferError::Refused(format!(
            "{table} was copied without --watch, so changes since then are not known: name another \
             file with --resume to copy everything again"
        )));
    }
    let page = job.source.changes(table, "now", Duration::ZERO, None).await.map_err(no_feed)?;
    job.saved.reach(table, page.next)
}

/// Why there is no change feed, as a sentence that says what to do.
fn no_feed(error: ClientError) -> TransferError {
    let foreign = match &error {
        ClientError::Foreign { .. } => true,
        ClientError::Service(refused) => {
            matches!(refused.status, 400 | 404 | 405 | 501) && refused.code != "TableNotFound"
        }
        _ => false,
    };
    if error.code() == "ChangesNotKept" {
        return TransferError::Refused(
            "the source keeps no changes: start it with --keep-changes, such as 'rowhouse serve \
             --keep-changes 7d'"
                .to_owned(),
        );
    }
    if foreign {
        return TransferError::Refused(
            "the source has no change feed, which only Rowhouse has: copy without --watch"
                .to_owned(),
        );
    }
    error.into()
}

/// Everything that is followed.
struct All<'a> {
    watch: &'a Watch,
    follower: &'a Follower,
    running: JoinSet<Result<(), TransferError>>,
    /// The policies of tables, as they are at the destination if it takes them.
    acls: BTreeMap<String, Vec<StoredPolicy>>,
    /// The tables whose policies the source does not give.
    refused: BTreeSet<String>,
}

impl All<'_> {
    async fn run(&mut self) -> Result<(), TransferError> {
        loop {
            let new = self.list().await?;
            if self.watch.until_caught_up {
                if !new && self.running.is_empty() {
                    return Ok(());
                }
                self.end(None).await?;
            } else {
                self.end(Some(Instant::now() + LIST_EVERY)).await?;
            }
            if self.follower.job.stop.is_asked() {
                return self.end(None).await;
            }
        }
    }

    /// Waits for those that end, until none is left or it is that late; ends with the first that failed.
    async fn end(&mut self, late: Option<Instant>) -> Result<(), TransferError> {
        let stop = self.follower.job.stop.clone();
        loop {
            tokio::select! {
                Some(ended) = self.running.join_next() => {
                    ended.expect("a task that follows does not panic")?;
                }
                () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => return Ok(()),
                () = stop.asked(), if late.is_some() => return Ok(()),
                else => return Ok(()),
            }
        }
    }

    /// Follows tables that have come into being, and copies policies that have changed. Whether there are new tables.
    async fn list(&mut self) -> Result<bool, TransferError> {
        let listed = match self.follow_new().await {
            Ok(new) => self.copy_acls().await.map(|()| new),
            Err(error) => Err(error),
        };
        self.follower.tell_notes();
        listed.or_else(|error| self.follower.bear(error).map(|()| false))
    }

    async fn follow_new(&mut self) -> Result<bool, TransferError> {
        let Follower { job, following, .. } = self.follower;
        let Watch { copy, .. } = self.watch;
        if !copy.tables.is_empty() {
            return Ok(false);
        }
        let mut new = copy.names(&job.source).await?;
        new.retain(|table| !following.has(table));
        let mut followed = false;
        for table in &new {
            match copy_new(copy, job, table).await {
                Err(error) if is_absent(&error) => continue,
                outcome => outcome?,
            }
            if job.stop.is_asked() {
                break;
            }
            following.tell(Notice::Made(table.clone()));
            self.follow(std::slice::from_ref(table));
            followed = true;
        }
        Ok(followed)
    }

    /// A policy that goes away at the source while it is followed goes away at the destination.
    async fn copy_acls(&mut self) -> Result<(), TransferError> {
        let Follower { job, following, .. } = self.follower;
        let policies = self.watch.copy.policies;
        if policies == Policies::LeftOut {
            return Ok(());
        }
        for table in following.names() {
            if self.refused.contains(&table) {
                continue;
            }
            let acl = match job.source.acl(&table).await {
                // Whoever follows it will notice.
                Err(error) if error.status() == Some(404) => continue,
                Err(error) if policies.bears(&error) => {
                    self.note(&table, &error);
                    self.refused.insert(table);
                    continue;
                }
                outcome => outcome?,
            };
            self.set_acl(&table, acl).await?;
        }
        Ok(())
    }

    /// Sets policies that are others than before, or than those that were copied with the table. Where they are refused, only
    /// others are tried again.
    async fn set_acl(&mut self, table: &str, acl: Vec<StoredPolicy>) -> Result<(), TransferError> {
        let (job, policies) = (&self.follower.job, self.watch.copy.policies);
        let stays = match self.acls.get(table).cloned().or_else(|| job.brought.get(table)) {
            Some(before) => before == acl,
            None => policies == Policies::Possible,
        };
        if !stays {
            match policies.replace(job, table, acl.clone()).await {
                Err(error) if policies.bears(&error) => self.note(table, &error),
                outcome => outcome?,
            }
        }
        self.acls.insert(table.to_owned(), acl);
        Ok(())
    }

    /// Notes a refusal, unless that was done when the table was copied.
    fn note(&self, table: &str, error: &ClientError) {
        if self.acls.contains_key(table) {
            self.follower.job.notes.add(Note::refused(table, error));
        }
    }

    fn follow(&mut self, tables: &[String]) {
        for table in tables {
            self.follower.following.begin(table);
        }
        for table in tables {
            self.running.spawn(self.follower.clone().follow(table.clone()));
        }
    }
}

async fn copy_new(copy: &Copy, job: &Job, table: &String) -> Result<(), TransferError> {
    take_place(job, table).await?;
    copy.copy_tables(job, std::slice::from_ref(table)).await
}

/// A table that was listed is not there any more.
fn is_absent(error: &TransferError) -> bool {
    matches!(error, TransferError::Client(error) if error.status() == Some(404))
}

/// Follows one table; clones share what all of them may do at a time.
#[derive(Clone, Debug)]
struct Follower {
    job: Job,
    following: Arc<Following>,
    until_caught_up: bool,
    /// Answers of the feed that are worked on.
    working: Arc<Semaphore>,
    /// Requests that wait for changes.
    waiting: Arc<Semaphore>,
}

/// What is known of the feed of a table.
struct Feed {
    table: Arc<str>,
    /// There may be changes already.
    more: bool,
    /// The end was not reached yet since something else may have made later changes.
    cautious: bool,
}

/// What the feed said.
enum Heard {
    Changes(ChangesPage),
    /// The table is not there any more.
    Gone,
    /// It was asked to stop.
    Stop,
}

impl Follower {
    async fn follow(self, table: String) -> Result<(), TransferError> {
        let mut feed = Feed { table: table.as_str().into(), more: true, cautious: true };
        while !self.job.stop.is_asked() {
            match self.step(&mut feed).await {
                Ok(true) if self.until_caught_up && !feed.more => return Ok(()),
                Ok(true) => {}
                Ok(false) => {
                    self.following.end(&table);
                    self.following.tell(Notice::Deleted(table));
                    return Ok(());
                }
                Err(error) => {
                    self.bear(error)?;
                    self.following.lose(&table);
                    // Part of what failed may have been made.
                    (feed.more, feed.cautious) = (true, true);
                    self.pause(PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Tells what was not copied.
    fn tell_notes(&self) {
        let notes = self.job.notes.take();
        if !notes.is_empty() {
            self.following.tell(Notice::NotCopied(notes));
        }
    }

    /// Tells of an error that may pass; any other ends everything, as it does where somebody waits for the end.
    fn bear(&self, error: TransferError) -> Result<(), TransferError> {
        match error {
            TransferError::Client(error) if error.is_passing() && !self.until_caught_up => {
                self.following.wait(error.to_string());
                Ok(())
            }
            error => Err(error),
        }
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.job.stop.asked() => {}
        }
    }

    /// Makes the changes of one answer. False if the table is gone.
    async fn step(&self, feed: &mut Feed) -> Result<bool, TransferError> {
        let (heard, _permit) = if feed.more {
            let permit = self.working.acquire().await;
            (self.ask(&feed.table, Duration::ZERO, None).await?, permit)
        } else {
            let heard = self.wait(&feed.table).await?;
            (heard, self.working.acquire().await)
        };
        let page = match heard {
            Heard::Changes(page) => page,
            Heard::Gone => return Ok(false),
            Heard::Stop => return Ok(true),
        };
        let mut changes = page.outcome().map_err(|reason| {
            TransferError::Refused(format!(
                "a change that the source told cannot be read: {reason}"
            ))
        })?;
        let time = |change: &Change| change.entity.record.as_ref().timestamp();
        let last = changes.last().map(time);
        if let Some(first) = changes.first().map(time) {
            self.following.hear(&feed.table, first);
        }
        if feed.cautious {
            changes = match still_true(&self.job.source, &feed.table, changes).await {
                Err(error) if error.code() == "TableNotFound" => return Ok(false),
                outcome => outcome?,
            };
        }
        let applier = Applier { client: self.job.loader.client.clone(), table: feed.table.clone() };
        applier.apply(changes).await?;
        self.job.saved.reach(&feed.table, page.next)?;
        self.following.note(&feed.table, page.changes.len() as u64, last, page.more);
        feed.more = page.more;
        feed.cautious &= page.more;
        Ok(true)
    }

    /// Waits for the next changes of a table, in turn with others if there are many.
    async fn wait(&self, table: &str) -> Result<Heard, TransferError> {
        let tables = self.following.tables();
        let mut wait = WAIT;
        if WAITING_MAX < tables {
            wait = Duration::ZERO;
            self.pause(ASK_EVERY * u32::try_from(tables).unwrap_or(u32::MAX)).await;
        }
        tokio::select! {
            heard = async {
                let _permit = self.waiting.acquire().await;
                self.ask(table, wait, Some(FIRST_CHANGES)).await
            } => heard,
            () = self.job.stop.asked() => Ok(Heard::Stop),
        }
    }

    async fn ask(
        &self,
        table: &str,
        wait: Duration,
        top: Option<usize>,
    ) -> Result<Heard, TransferError> {
        let place = self.job.saved.place(table).expect("it was taken before the table was copied");
        match self.job.source.changes(table, &place, wait, top).await {
            Ok(page) => Ok(Heard::Changes(page)),
            Err(error) if error.code() == "TableNotFound" => Ok(Heard::Gone),
            Err(error) if error.code() == "ChangesExpired" => Err(lost(table)),
            Err(error) => Err(no_feed(error)),
        }
    }
}

/// What to do where the feed has a gap.
fn lost(table: &str) -> TransferError {
    TransferError::Refused(format!(
        "changes of {table} that were not copied are no longer kept by the source, or it was deleted and \
         made again there: delete {table} at the destination, and copy again with another file for \
         --resume (if it took too long, let the source keep changes for longer)"
    ))
}
