//! The engine's own bounds and rhythms, in one place so that tests can make them small.

use std::thread;
use std::time::Duration;

/// Jobs waiting for the committer above which the sweep waits.
pub(crate) const SWEEP_QUEUE: usize = 8;

/// Sizes and pauses that no user needs to set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Most jobs that may wait for the committer; one more is refused as busy.
    pub(crate) queue_jobs: usize,
    /// Most bytes of records and keys that may wait for the committer.
    pub(crate) queue_bytes: usize,
    /// Most commands in one transaction. A group takes at least one job, however large.
    pub(crate) group_commands: usize,
    /// Most bytes of records and keys in one transaction.
    pub(crate) group_bytes: usize,
    /// Least number of scan threads, and once the store is open how many there are. On small machines more than processors, so
    /// that a long page leaves room for a short one: the operating system shares the processors out among them.
    pub(crate) scan_threads: usize,
    /// Looks at the clock from which on a page is long and its thread steps back: 16,384 rows, unless the filter is long. That is a few
    /// milliseconds, more than any page takes that reads little else than what it answers with.
    pub(crate) long_looks: u32,
    /// Rows that a page with a filter examines before it has a second thread read from the end, and between attempts. A
    /// multiple of how many are examined between looks. By then the page has taken a few times as long as waking a thread does.
    pub(crate) back_after_rows: u32,
    /// Threads that may be reading pages when another is put to work on one of them: no more than can run at a time.
    pub(crate) processors: u32,
    /// Rows from which on a read that does not end early is long: examining them takes about as long as writers wait the first time
    /// that the log is to start again, so that a shorter one is worth waiting for.
    pub(crate) whole_rows: u32,
    /// Most pages of queries that may wait for a scan thread.
    pub(crate) scan_jobs: usize,
    /// Most bytes of key and record in a row of `entities`; a larger record goes to `large`.
    ///
    /// Just under a quarter of a page, because SQLite moves what is longer than that to overflow pages,
    /// one at least for each row. By `where_records_spill` a record of 1,100 bytes occupies 4,700 bytes in
    /// its row and 1,400 in the side table, and is written and found by key there in about half the time.
    /// One of 700 bytes takes nearly the same space in both, and in the side table scans pay a second
    /// lookup for it.
    pub(crate) inline_bytes: usize,
    /// Frames of the log (a page each) not yet copied into the database that start a checkpoint.
    ///
    /// While a checkpoint waits for the disk, so do commits: few pages at a time keep that wait short. At 7,200 inserts
    /// a second, 1,000 frames gave a p99 of 8 ms, 4,096 frames one of 231 ms, at the same cost in CPU time.
    pub(crate) wal_soft_frames: i32,
    /// How long nothing must have been committed before a checkpoint starts without that.
    pub(crate) wal_idle: Duration,
    /// Frames in the log beyond which writers wait a moment so that it can start again from its
    /// beginning; from twice as many if a long count or the like needs it. The wait is short at first and at four times
    /// this long enough for any page.
    pub(crate) wal_hard_frames: i32,
    /// Bytes to which the log's file is cut when it starts again.
    pub(crate) wal_file_bytes: i64,
    /// How long the committer waits for a lock that a restart of the log holds, or another program.
    pub(crate) lock_patience: Duration,
    /// Pause after the log could not start again because of readers, or not be copied because the disk is full.
    pub(crate) restart_pause: Duration,
    /// Rows that a step of the sweep deletes.
    pub(crate) sweep_rows: usize,
    /// Bytes of large records that end a step of the sweep early.
    pub(crate) sweep_bytes: usize,
    /// Pause between steps of the sweep, and until the queue is looked at again when it is long.
    pub(crate) sweep_pause: Duration,
    /// Entities that a step of building an index enters: each is looked up, and most write a page.
    pub(crate) build_rows: usize,
    /// Bytes of records that end such a step early.
    pub(crate) build_bytes: usize,
    /// Entities that are read ahead and sorted, so that steps write the same pages of the index.
    pub(crate) build_chunk_rows: u32,
    /// Bytes of their keys and entries that end the reading ahead early.
    pub(crate) build_chunk_bytes: usize,
    /// Longest pause between such steps. It is as long as the last one took, so that others have as much.
    pub(crate) build_pause_max: Duration,
    /// How long a step waits for a moment in which little waits for the committer.
    pub(crate) build_patience: Duration,
    /// Expired messages that a take walks over at a time: others have their turn before it goes on.
    pub(crate) take_walk: usize,
    /// Free pages that are kept for the next writes and not returned to the file system.
    pub(crate) free_pages_kept: u32,
    /// How often the number of free pages is looked at without a cause.
    pub(crate) free_pages_interval: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            queue_jobs: 4096,
            queue_bytes: 64 * 1024 * 1024,
            group_commands: 1024,
            group_bytes: 4 * 1024 * 1024,
            scan_threads: 8,
            long_looks: 1024,
            back_after_rows: 1024,
            processors: thread::available_parallelism()
                .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            whole_rows: 100_000,
            scan_jobs: 1024,
            inline_bytes: 960,
            wal_soft_frames: 1024,
            wal_idle: Duration::from_millis(500),
            wal_hard_frames: 16 * 1024,
            wal_file_bytes: 64 * 1024 * 1024,
            lock_patience: Duration::from_mins(1),
            restart_pause: Duration::from_millis(500),
            sweep_rows: 500,
            sweep_bytes: 2 * 1024 * 1024,
            sweep_pause: Duration::from_millis(2),
            build_rows: 100,
            build_bytes: 1024 * 1024,
            build_chunk_rows: 100_000,
            build_chunk_bytes: 16 * 1024 * 1024,
            build_pause_max: Duration::from_millis(50),
            build_patience: Duration::from_millis(100),
            take_walk: 10_000,
            free_pages_kept: 64,
            free_pages_interval: Duration::from_secs(5),
        }
    }
}
