//! `rowhouse cluster`: what a running server keeps its data in, through its admin API.

use crate::admin_client::AdminOptions;
use crate::{Failure, output};
use clap::{Args, Subcommand};
use rowhouse_types::cluster::{Cluster, ClusterStatus, Load, Node, Peak, Role, Shard};
use std::fmt::Write as _;

/// Look at the database or the cluster that a running server keeps its data in.
///
/// Without TLS the server must run on this machine; '--admin https://...' names another. The command reads the
/// admin token from the server's data directory, or from --admin-token-file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct ClusterCommand {
    #[command(flatten)]
    options: AdminOptions,

    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rowhouse cluster status
  rowhouse cluster status --json --admin http://127.0.0.1:10013";

#[derive(Debug, Subcommand)]
enum Action {
    /// Show nodes, servers and shards: sizes, load and how even they are.
    Status,
}

impl ClusterCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Action::Status = self.action;
        let answer = self.options.client()?.send("GET", "/v1/cluster", None)?;
        if self.options.json {
            output::print(&format!("{answer}\n"));
            return Ok(());
        }
        let status = serde_json::from_value(answer).map_err(|_| {
            "the server tells what this command does not understand: use the release of the server, or --json"
        })?;
        output::print(&tell(&status));
        Ok(())
    }
}

/// What people read.
fn tell(status: &ClusterStatus) -> String {
    match status {
        ClusterStatus::Embedded { bytes } => format!(
            "There is no cluster: this server keeps its data in its own directory, {} now.\n",
            size(*bytes)
        ),
        ClusterStatus::Postgres(cluster) => {
            format!("One PostgreSQL database, no cluster.\n\n{}", parts(cluster))
        }
        ClusterStatus::Citus(cluster) => {
            format!("A Citus cluster.\n\n{}\n{}", parts(cluster), evenness(cluster))
        }
    }
}

fn parts(cluster: &Cluster) -> String {
    format!(
        "{}\n{}\n{}\nLoad is what the servers measured in about the last ten seconds. MS/S is how long they waited\n\
         for answers: 1,000 is one operation under way all the time.\n",
        nodes(cluster),
        servers(cluster),
        shards(cluster)
    )
}

fn nodes(cluster: &Cluster) -> String {
    let head = ["NODE", "ADDRESS", "ROLE", "STATE", " SHARDS", " SIZE", " MS/S"];
    let row = |node: &Node| {
        vec![
            node.id.to_string(),
            format!("{}:{}", node.host, node.port),
            role(node.role).to_owned(),
            state(node).to_owned(),
            cluster.shards_of(node).count().to_string(),
            known(total(cluster.shards_of(node)).map(size)),
            figure(cluster.busy_of(node)),
        ]
    };
    output::table(&head, &cluster.nodes.iter().map(row).collect::<Vec<_>>())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Database => "database",
        Role::Coordinator => "coordinator",
        Role::Worker => "worker",
        Role::Standby => "standby",
    }
}

fn state(node: &Node) -> &'static str {
    match (node.reachable, node.active) {
        (false, _) => "unreachable",
        (true, false) => "disabled",
        (true, true) => "up",
    }
}

/// Bytes of the shards, unless one is not known.
fn total<'a>(shards: impl Iterator<Item = &'a Shard>) -> Option<u64> {
    shards.map(|shard| shard.bytes).sum()
}

fn servers(cluster: &Cluster) -> String {
    let rows = cluster.servers.iter().map(|server| {
        vec![
            server.slot.to_string(),
            known(server.since.clone()),
            format!("{}.{} s", server.lease_ms / 1000, server.lease_ms % 1000 / 100),
            if server.asked { "asked now".to_owned() } else { String::new() },
        ]
    });
    output::table(&["SERVER", "SINCE", " LEASE", ""], &rows.collect::<Vec<_>>())
}

fn shards(cluster: &Cluster) -> String {
    let head = ["SHARD", "NODE", "HASHES", " SIZE", " ENTITIES", " READS/S", " WRITES/S", " MS/S"];
    let row = |shard: &Shard| {
        let place = vec![
            if shard.id == 0 { "all".to_owned() } else { shard.id.to_string() },
            known(shard.node.map(|node| node.to_string())),
            format!("{} to {}", shard.from, shard.to),
            known(shard.bytes.map(size)),
            known(shard.rows.map(grouped)),
        ];
        [place, load(&shard.load)].concat()
    };
    let mut rows: Vec<_> = cluster.shards.iter().map(row).collect();
    if cluster.several != Load::default() {
        let nothing = ["several", "", "", "", ""].map(str::to_owned);
        rows.push([nothing.to_vec(), load(&cluster.several)].concat());
    }
    output::table(&head, &rows)
}

fn load(load: &Load) -> Vec<String> {
    [load.reads_per_second, load.writes_per_second, load.busy_ms_per_second].map(figure).to_vec()
}

/// How uneven it is, and what to do about it.
fn evenness(cluster: &Cluster) -> String {
    let skew = cluster.skew();
    let mut out = String::new();
    let lines = [
        ("Largest shard", skew.shard_size, "size"),
        ("Busiest shard", skew.shard_load, "load"),
        ("Busiest node", skew.node_load, "load"),
    ];
    for (who, peak, what) in lines {
        // Writing to a string cannot fail.
        let _ = match peak {
            Some(Peak { id, times, .. }) => {
                writeln!(out, "{who:13}  {id}, {times:.1} times the mean {what}")
            }
            None => writeln!(out, "{who:13}  none"),
        };
    }
    if let Some(hint) = cluster.hint() {
        let _ = write!(out, "\n{}", wrapped(&hint));
    }
    out
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "?".to_owned())
}

/// A number of bytes with three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn size(bytes: u64) -> String {
    if bytes == 0 {
        return "0".to_owned();
    }
    let units = ["kB", "MB", "GB", "TB"];
    let mut amount = bytes as f64 / 1e3;
    let mut unit = 0;
    while amount >= 999.5 && unit + 1 < units.len() {
        amount /= 1e3;
        unit += 1;
    }
    let digits = usize::from(amount < 9.95);
    format!("{amount:.digits$} {}", units[unit])
}

/// A number with a comma before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: one digit behind the point where the number is small.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was rounded, and no rate is below 0"
)]
fn figure(rate: f64) -> String {
    if rate == 0.0 {
        return "0".to_owned();
    }
    if rate < 9.95 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

/// Lines for a terminal.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 96;
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 {
            let fits = width + 1 + length <= WIDTH;
            out.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_types::cluster::Server;

    fn node(id: i64, role: Role, reachable: bool) -> Node {
        Node { id, host: "10.0.0.7".to_owned(), port: 5432, role, active: true, reachable }
    }

    fn shard(id: i64, node: i64, bytes: Option<u64>, busy: f64) -> Shard {
        let load = Load {
            reads_per_second: busy * 2.0,
            writes_per_second: 0.25,
            busy_ms_per_second: busy,
            ..Load::default()
        };
        let (from, to) = (i32::MIN, -1_073_741_825);
        Shard { id, node: Some(node), from, to, bytes, rows: bytes.map(|bytes| bytes / 200), load }
    }

    fn cluster() -> Cluster {
        Cluster {
            nodes: vec![
                node(1, Role::Coordinator, true),
                node(2, Role::Worker, true),
                node(3, Role::Worker, false),
            ],
            servers: vec![
                Server { slot: 0, lease_ms: 2940, since: Some("today".to_owned()), asked: true },
                Server { slot: 1, lease_ms: 80, since: None, asked: false },
            ],
            shards: vec![
                shard(102_008, 2, Some(512_000_000), 11.0),
                shard(102_009, 2, Some(498_000_000), 2150.0),
                shard(102_010, 3, None, 3.0),
                shard(102_011, 3, None, 0.0),
            ],
            several: Load { reads_per_second: 1.0, busy_ms_per_second: 30.0, ..Load::default() },
        }
    }

    #[test]
    fn a_cluster_is_told_in_columns() {
        let text = tell(&ClusterStatus::Citus(cluster()));
        let expected = "\
A Citus cluster.

NODE   ADDRESS         ROLE          STATE         SHARDS     SIZE    MS/S
1      10.0.0.7:5432   coordinator   up                 0        0       0
2      10.0.0.7:5432   worker        up                 2   1.0 GB   2,161
3      10.0.0.7:5432   worker        unreachable        2        ?     3.0

SERVER   SINCE   LEASE
0        today   2.9 s   asked now
1        ?       0.0 s

SHARD     NODE   HASHES                         SIZE    ENTITIES   READS/S   WRITES/S    MS/S
102008    2      -2147483648 to -1073741825   512 MB   2,560,000        22        0.2      11
102009    2      -2147483648 to -1073741825   498 MB   2,490,000     4,300        0.2   2,150
102010    3      -2147483648 to -1073741825        ?           ?       6.0        0.2     3.0
102011    3      -2147483648 to -1073741825        ?           ?         0        0.2       0
several                                                                1.0          0      30

Load is what the servers measured in about the last ten seconds. MS/S is how long they waited
for answers: 1,000 is one operation under way all the time.

Largest shard  102008, 1.0 times the mean size
Busiest shard  102009, 4.0 times the mean load
Busiest node   2, 2.0 times the mean load

Shard 102009 takes 99 % of the time: if that is one partition, only more PartitionKeys help,
because a partition never spreads over shards; if it is many, split the shard.
";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn what_is_no_cluster_says_so() {
        let embedded = tell(&ClusterStatus::Embedded { bytes: 12_345_678 });
        assert!(embedded.starts_with("There is no cluster") && embedded.contains("12 MB"));
        let one = Cluster {
            nodes: vec![node(1, Role::Database, true)],
            shards: vec![shard(0, 1, Some(8192), 0.0)],
            ..Cluster::default()
        };
        let text = tell(&ClusterStatus::Postgres(one));
        assert!(text.starts_with("One PostgreSQL database") && text.contains("\nall "), "{text}");
        assert!(!text.contains("times the mean"), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        let sizes = [0, 8192, 99_499, 999_499, 999_500, 1_500_000, 2_000_000_000_000_000];
        let texts = ["0", "8.2 kB", "99 kB", "999 kB", "1.0 MB", "1.5 MB", "2000 TB"];
        assert_eq!(sizes.map(size), texts);
        let figures = [0.0, 0.04, 9.94, 9.96, 1234.5].map(figure);
        assert_eq!(figures, ["0", "0.0", "9.9", "10", "1,235"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn long_sentences_become_lines() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= 96), "{text}");
        assert_eq!(wrapped("short"), "short\n");
    }
}
