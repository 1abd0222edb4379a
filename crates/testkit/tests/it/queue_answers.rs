//! How much memory the answers to Get Messages may take: beyond that they are refused before anything is taken, never afterwards.

use rowhouse_testkit::{Client, Connection, Response, TestServer};
use std::thread;
use std::time::Duration;

/// The longest text there is, and the longest way to write it: five bytes of answer for each.
fn longest() -> String {
    let text = "&amp;".repeat(64 * 1024);
    format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>")
}

/// A server that holds answers of so many MiB, with a queue `orders` of so many messages.
fn serve(mib: &str, messages: usize, body: &str) -> (TestServer, Client) {
    let server = TestServer::start_with(&["--max-body-mib", mib]);
    let mut client = server.queue_client();
    assert_eq!(client.request("PUT", "orders", &[], b"").status, 201);
    for _ in 0..messages {
        let put = client.request("POST", "orders/messages", &[], body.as_bytes());
        assert_eq!(put.status, 201, "{}", put.text());
    }
    (server, client)
}

fn messages(client: &mut Client, options: &str) -> Response {
    client.request("GET", &format!("orders/messages?{options}"), &[], b"")
}

fn count(response: &Response) -> usize {
    assert_eq!(response.status, 200, "{}", response.text());
    response.text().matches("<MessageId>").count()
}

#[test]
fn who_does_not_read_answers_gets_no_more_messages() {
    let (server, mut client) = serve("16", 40, &longest());
    // Ten of the fourteen MiB that one account can have, and more than sockets hold.
    let mut unread = Connection::open(server.queue_address()).unwrap();
    unread.send(&client.head("GET", "orders/messages?numofmessages=32", &[], None)).unwrap();
    assert!(unread.has_answer(Duration::from_secs(20)), "an idle server answers");
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let mut client = server.queue_client();
            thread::spawn(move || messages(&mut client, "numofmessages=32"))
        })
        .collect();
    for answer in asked {
        let answer = answer.join().unwrap();
        let told = (answer.status, answer.code());
        assert_eq!(told, (503, Some("ServerBusy".to_owned())), "{} bytes", answer.body.len());
    }
    let seen = messages(&mut client, "peekonly=true&numofmessages=8");
    assert_eq!(count(&seen), 8, "all are still there");
    assert_eq!(seen.text().matches("<DequeueCount>0<").count(), 8, "and nobody has had them");
    assert_eq!(count(&messages(&mut client, "numofmessages=1")), 1, "there is room for one");
    drop(unread);
    assert_eq!(count(&messages(&mut client, "numofmessages=32")), 7);
}

#[test]
fn the_largest_answer_fits_into_the_smallest_budget() {
    let (_server, mut client) = serve("4", 32, &longest());
    let all = messages(&mut client, "numofmessages=32");
    assert_eq!(count(&all), 32);
    assert!(10 * 1024 * 1024 < all.body.len());
}

/// Room is kept for the longest texts, and given back when they are short.
#[test]
fn many_who_ask_for_little_are_all_served() {
    let body = "<QueueMessage><MessageText>x</MessageText></QueueMessage>";
    let (server, _client) = serve("16", 50, body);
    let asked: Vec<_> = (0..16)
        .map(|_| {
            let mut client = server.queue_client();
            let ask = move |_| count(&messages(&mut client, "numofmessages=32"));
            thread::spawn(move || (0..20).map(ask).sum::<usize>())
        })
        .collect();
    let got: usize = asked.into_iter().map(|asked| asked.join().unwrap()).sum();
    assert_eq!(got, 50);
}
