//! What travels between the database and the engine when a page looks at some properties only.

use crate::common;
use crate::common::{commit, filter, key, page, put, record, scan_all, table};
use rowhouse_store::Scan;
use rowhouse_testkit::TestPostgres;
use rowhouse_types::ValueRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

const ROWS: usize = 100;
const PROPERTIES: usize = 60;

/// Passes everything on to the port, and counts what comes back; its own port.
async fn counting(port: u16, received: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let own = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((engine, _)) = listener.accept().await {
            let database = TcpStream::connect(("127.0.0.1", port)).await.expect("a database");
            let (mut asked, mut answered) = engine.into_split();
            let (answers, mut questions) = database.into_split();
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut asked, &mut questions).await;
                let _ = questions.shutdown().await;
            });
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                loop {
                    answers.readable().await.expect("a connection");
                    match answers.try_read(&mut buffer) {
                        Ok(0) => break,
                        Ok(read) => {
                            received.fetch_add(read as u64, Ordering::Relaxed);
                            if answered.write_all(&buffer[..read]).await.is_err() {
                                break;
                            }
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => break,
                    }
                }
            });
        }
    });
    own
}

#[test]
fn only_what_is_selected_travels() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let received = Arc::new(AtomicU64::new(0));
        let port = counting(server.port(), Arc::clone(&received)).await;
        let through = url.replace(&format!(":{}/", server.port()), &format!(":{port}/"));
        assert_ne!(through, url, "the address has the port");
        let store = common::open(&through).await;
        let table = table(&*store).await;
        let text = "x".repeat(50);
        let names: Vec<_> = (0..PROPERTIES).map(|n| format!("p{n}")).collect();
        let properties = names.iter().map(|name| (&**name, ValueRef::String(&text)));
        let wide = record(&properties.collect::<Vec<_>>());
        let puts = (0..ROWS).map(|row| put(table, &key("p", &format!("{row:03}")), wide.clone()));
        commit(&*store, puts.collect()).await.expect("it is written");

        let bytes = async |select: Option<&[&str]>, condition: Option<&str>| {
            let select = select.map(|names| names.iter().map(|name| Box::from(*name)).collect());
            let scan = Scan { select, filter: condition.map(filter), ..scan_all() };
            let before = received.load(Ordering::Relaxed);
            assert_eq!(page(&*store, table, scan).await.rows.len(), ROWS);
            received.load(Ordering::Relaxed) - before
        };
        // One is judged by the database, one here.
        for condition in [None, Some("p7 ge 'a'"), Some("toupper(p7) ne 'É'")] {
            let whole = bytes(None, condition).await;
            assert!(whole > (ROWS * PROPERTIES * text.len()) as u64, "{condition:?}: {whole}");
            for select in [&["p3"][..], &["p3", "none"], &["RowKey"]] {
                let some = bytes(Some(select), condition).await;
                assert!(some * 12 < whole, "{condition:?}, {select:?}: {some} of {whole} bytes");
            }
        }
    });
}
