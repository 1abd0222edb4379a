//! Thousands of tables: making them, listing them, and a start with them.

use super::trial::Trial;
use crate::aims::Bound;
use crate::call::{call, create_table};
use crate::text::count;
use std::io;
use std::net::SocketAddrV4;
use std::time::Instant;

pub(super) fn measure(trial: &mut Trial<'_>, tables: u64) -> io::Result<()> {
    let address = trial.server.address();
    let began = Instant::now();
    for table in 0..tables {
        create_table(address, &format!("small{table}"))?;
    }
    let rate = tables as f64 / began.elapsed().as_secs_f64();
    let what = format!("{} tables", count(tables));
    trial.report.fact(format!("{what}: created one after the other"), rate, "/s");
    let began = Instant::now();
    let listed = list(address)?;
    trial.report.fact(format!("{what}: listed"), began.elapsed().as_secs_f64() * 1e3, "ms");
    if listed != tables {
        return Err(io::Error::other(format!("{listed} of {tables} tables were listed")));
    }
    trial.tell_memory(&format!("with {what}"));
    trial.restart(&what, Bound::None)
}

/// Lists all tables page by page. Returns how many there are.
fn list(address: SocketAddrV4) -> io::Result<u64> {
    let (mut listed, mut query) = (0, String::new());
    loop {
        let reply = call(address, "GET", "/Tables", &query, "", b"")?;
        let body: serde_json::Value = serde_json::from_slice(&reply.body)?;
        let page = body["value"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(last) = page.last().and_then(|table| table["TableName"].as_str()) else {
            return Ok(listed);
        };
        listed += page.len() as u64;
        query = format!("?$filter=TableName%20gt%20%27{last}%27");
    }
}
