//! Asks the admin API of a running server: one request per connection.
//!
//! The token never crosses a network unencrypted: without TLS only this machine is asked.

use crate::Failure;
use crate::admin_stream::AdminStream;
use clap::Args;
use rowhouse_server::{ADMIN_TOKEN_FILE, Config, DatabaseAddress};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const CONNECT_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// A server that takes longer to say whether it is ready is not.
const READY_TIME: Duration = Duration::from_secs(4);
/// What a server that is ready says.
const READY: &[u8] = b"ready\n";
/// Longest silence in the middle of a backup.
const STREAM_TIME: Duration = Duration::from_mins(2);
/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where the admin listener is unless configured.
pub(crate) const ADMIN_DEFAULT: &str = "http://127.0.0.1:10003";

/// Which server to ask, and how to print what it says.
#[derive(Debug, Args)]
pub(crate) struct AdminOptions {
    /// The admin listener of the server.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ROWHOUSE_ADMIN",
        default_value = ADMIN_DEFAULT
    )]
    admin: String,

    /// The data directory of the server, which holds the admin token. Default: rowhouse-data.
    #[arg(long, global = true, value_name = "DIR", env = "ROWHOUSE_DATA")]
    pub(crate) data: Option<PathBuf>,

    /// A file with the admin token, if it is not in the data directory.
    #[arg(long, global = true, value_name = "FILE", env = "ROWHOUSE_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,

    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl AdminOptions {
    /// A server by its admin listener alone.
    pub(crate) fn at(admin: String) -> Self {
        Self { admin, data: None, admin_token_file: None, json: false }
    }

    /// A client for what that server answers to everybody on this machine. Only a listener with TLS wants the token for that, and only
    /// it gets the token: while the server is down, somebody else may listen on its port.
    pub(crate) fn probe(&self) -> Result<AdminClient, Failure> {
        let listener = parse_url(&self.admin)?;
        let token = if listener.encrypted {
            read_token(&self.token_file()).unwrap_or_default()
        } else {
            String::new()
        };
        Ok(AdminClient { listener, token })
    }

    fn token_file(&self) -> PathBuf {
        let in_data =
            || self.data.clone().unwrap_or_else(|| Config::default().data).join(ADMIN_TOKEN_FILE);
        self.admin_token_file.clone().unwrap_or_else(in_data)
    }

    /// Who asks that server.
    pub(crate) fn client(&self) -> Result<AdminClient, Failure> {
        if self.data.as_deref().is_some_and(DatabaseAddress::is_meant_by) {
            return Err(
                "--data takes the directory of the server that holds its admin token, not the \
                        database: this command asks a running server"
                    .to_owned(),
            );
        }
        AdminClient::new(&self.admin, &self.token_file())
    }
}

/// A server to ask, and the token to ask with.
#[derive(Debug)]
pub(crate) struct AdminClient {
    listener: Listener,
    token: String,
}

/// An answer that is long.
#[derive(Debug)]
pub(crate) struct Incoming {
    head: Vec<u8>,
    /// What comes behind its head.
    pub(crate) body: BufReader<AdminStream>,
}

impl Incoming {
    /// A header of it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// Where a server listens.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    host: String,
    port: u16,
    encrypted: bool,
}

impl AdminClient {
    /// Takes the URL of the admin listener and the file that holds a token.
    fn new(url: &str, token_file: &Path) -> Result<Self, Failure> {
        Ok(Self { listener: parse_url(url)?, token: read_token(token_file)? })
    }

    /// Whether the server takes requests. Answers within [`READY_TIME`], whatever the other side does.
    pub(crate) fn ready(self) -> Result<(), Failure> {
        let late = self.late();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(self.ask_whether_ready()));
        receiver.recv_timeout(READY_TIME).unwrap_or(Err(late))
    }

    fn ask_whether_ready(&self) -> Result<(), Failure> {
        let attempt = || -> io::Result<(Vec<u8>, Vec<u8>)> {
            let mut stream = self.connect(READY_TIME)?;
            let head = self.head("GET", "/readyz", "HTTP/1.1", "Connection: close\r\n");
            stream.write_all(head.as_bytes())?;
            let mut stream = BufReader::new(stream);
            let head = read_head(&mut stream)?;
            let mut body = vec![0; READY.len()];
            let _ = stream.read_exact(&mut body);
            Ok((head, body))
        };
        let (head, body) = attempt().map_err(|error| self.silent(&error))?;
        // A listener of a service answers every request with an id.
        if header(&head, "x-ms-request-id").is_some() {
            return Err(self.stranger());
        }
        match status(&head) {
            Some(200) if body == READY => Ok(()),
            Some(401 | 403) => Err(
                "the server wants a token to answer: name its data directory (--data) or token file \
                 (--admin-token-file)"
                    .to_owned(),
            ),
            Some(503) => Err(format!(
                "the server at {}:{} is running and takes no writes: read its log",
                self.listener.host, self.listener.port
            )),
            _ => Err(self.stranger()),
        }
    }

    fn late(&self) -> Failure {
        let Listener { host, port, .. } = &self.listener;
        format!(
            "the server at {host}:{port} did not answer in time: see whether it is overloaded or suspended"
        )
    }

    /// Sends a request and returns the JSON of a successful answer; `Null` if it has none.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let answer = self.exchange(method, path, body).map_err(|error| self.silent(&error))?;
        self.understand(&answer)
    }

    /// Asks for something long, and returns its bytes as they come.
    pub(crate) fn receive(&self, path: &str) -> Result<Incoming, Failure> {
        let attempt = || -> io::Result<(u16, Vec<u8>, BufReader<AdminStream>)> {
            let mut stream = self.connect(STREAM_TIME)?;
            // In this version a body ends with its connection, and need not be taken out of chunks.
            stream.write_all(self.head("GET", path, "HTTP/1.0", "").as_bytes())?;
            let mut stream = BufReader::new(stream);
            let head = read_head(&mut stream)?;
            Ok((status(&head).unwrap_or(0), head, stream))
        };
        let (status, mut answer, stream) = attempt().map_err(|error| self.silent(&error))?;
        if status != 200 {
            let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
            read.map_err(|error| self.silent(&error))?;
            return Err(self.understand(&answer).err().unwrap_or_else(|| self.stranger()));
        }
        Ok(Incoming { head: answer, body: stream })
    }

    /// Sends something long once the server wants it, and returns the JSON of its answer.
    pub(crate) fn upload(
        &self,
        path: &str,
        length: u64,
        mut body: impl Read,
    ) -> Result<Value, Failure> {
        let headers = format!(
            "Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\nConnection: close\r\n"
        );
        let mut begun = false;
        let mut attempt = || -> io::Result<Vec<u8>> {
            let mut stream = BufReader::new(self.connect(STREAM_TIME)?);
            let head = self.head("POST", path, "HTTP/1.1", &headers);
            stream.get_mut().write_all(head.as_bytes())?;
            let mut answer = read_head(&mut stream)?;
            if status(&answer) == Some(100) {
                begun = true;
                // A server that refuses in the middle says why before it hangs up.
                let sent = io::copy(&mut body, stream.get_mut());
                answer = read_head(&mut stream).map_err(|error| sent.err().unwrap_or(error))?;
            }
            stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
            Ok(answer)
        };
        match attempt() {
            Ok(answer) => self.understand(&answer),
            Err(error) if begun => Err(self.broken(&error)),
            Err(error) => Err(self.silent(&error)),
        }
    }

    fn broken(&self, error: &io::Error) -> Failure {
        format!(
            "the connection to the server at {}:{} broke ({error}): see that the server runs, then give the \
             same command again, which goes on from the last place that was noted",
            self.listener.host, self.listener.port
        )
    }

    fn understand(&self, answer: &[u8]) -> Result<Value, Failure> {
        let (status, body) = parse_answer(answer).ok_or_else(|| self.stranger())?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let message = body["error"]["message"].as_str().unwrap_or("the server gave no reason");
        Err(match status {
            401 => {
                "the server does not accept the token: use the file of the running server's data \
                    directory (--data) or its token file (--admin-token-file)"
                    .to_owned()
            }
            _ => message.trim_end_matches('.').to_owned(),
        })
    }

    fn silent(&self, error: &io::Error) -> Failure {
        let Listener { host, port, .. } = &self.listener;
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            return self.late();
        }
        if self.listener.encrypted && error.to_string().contains("InvalidContentType") {
            return format!("{host}:{port} does not speak TLS: name it with http:// in --admin");
        }
        if self.listener.encrypted && error.kind() == io::ErrorKind::InvalidData {
            return format!(
                "{}:{} cannot be trusted ({error}): name a file with the authority that vouches for \
                 it in SSL_CERT_FILE",
                self.listener.host, self.listener.port
            );
        }
        format!(
            "no answer from the server at {}:{} ({error}): start it with 'rowhouse serve', or name \
             its admin listener with --admin",
            self.listener.host, self.listener.port
        )
    }

    fn stranger(&self) -> Failure {
        format!(
            "what answers at {}:{} is not a Rowhouse admin listener: check --admin, and whether the \
             listener speaks TLS (https://)",
            self.listener.host, self.listener.port
        )
    }

    /// The head of a request; headers end with a line break each.
    fn head(&self, method: &str, path: &str, version: &str, headers: &str) -> String {
        let Listener { host, port, .. } = &self.listener;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let token = match self.token.as_str() {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        format!("{method} {path} {version}\r\nHost: {host}:{port}\r\n{token}{headers}\r\n")
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Vec<u8>> {
        let mut stream = self.connect(ANSWER_TIME)?;
        let body = body.map_or_else(String::new, Value::to_string);
        let headers = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
            body.len()
        );
        let head = self.head(method, path, "HTTP/1.1", &headers);
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }

    /// Connects; reading or writing may take so long each time.
    fn connect(&self, patience: Duration) -> io::Result<AdminStream> {
        let Listener { host, port, encrypted } = &self.listener;
        let stream = connect(host, *port)?;
        let stream = match encrypted {
            true => AdminStream::encrypted(stream, host)?,
            false => AdminStream::Plain(stream),
        };
        stream.set_patience(patience)?;
        Ok(stream)
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Takes `http://localhost:10003` apart, and refuses what would carry a token over a network unencrypted.
fn parse_url(url: &str) -> Result<Listener, Failure> {
    let wrong =
        || format!("--admin takes a URL such as http://127.0.0.1:10003, which {url:?} is not");
    let (scheme, authority) = url.trim_end_matches('/').split_once("://").ok_or_else(wrong)?;
    let (encrypted, usual) = match scheme {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return Err(wrong()),
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            (host, rest.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| wrong())?,
        None => usual,
    };
    if host.is_empty() {
        return Err(wrong());
    }
    let here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !here && !encrypted {
        return Err(format!(
            "{host:?} is not this machine, and the token would go there unencrypted: name an \
             https:// address, or run this command on the server's own machine"
        ));
    }
    Ok(Listener { host: host.to_owned(), port, encrypted })
}

/// The first token of the file, without its scopes.
fn read_token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "only the server's user may read the admin token {}: run the command as that user (sudo -u USER \
             rowhouse ...), or name a token of yours with --admin-token-file",
            path.display()
        ),
        _ => format!(
            "cannot read the admin token {} ({error}): name the server's data directory with \
             --data, or its token file with --admin-token-file",
            path.display()
        ),
    })?;
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    match line.split_whitespace().next() {
        Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(token.to_owned()),
        _ => Err(format!("{} holds no token: check --admin-token-file", path.display())),
    }
}

/// Reads up to and with the empty line that ends a head.
fn read_head(stream: &mut BufReader<impl Read>) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut lines = stream.take(HEAD_BYTES_MAX);
    while !head.ends_with(b"\r\n\r\n") {
        if lines.read_until(b'\n', &mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// The status in a head.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|&byte| byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// A header in a head.
fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(head).ok()?.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

/// Status and JSON of an answer that ends with its connection.
fn parse_answer(answer: &[u8]) -> Option<(u16, Value)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = status(answer)?;
    let body = answer.get(end + 4..)?;
    let json = if body.is_empty() { Value::Null } else { serde_json::from_slice(body).ok()? };
    Some((status, json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_this_machine_is_asked_without_tls() {
        let cases = [
            ("http://127.0.0.1:10003", Some(("127.0.0.1", 10003, false))),
            ("http://localhost:1/", Some(("localhost", 1, false))),
            ("http://[::1]:2", Some(("::1", 2, false))),
            ("http://localhost", Some(("localhost", 80, false))),
            ("https://127.0.0.1:10003", Some(("127.0.0.1", 10003, true))),
            ("https://example.org", Some(("example.org", 443, true))),
            ("http://192.0.2.1:10003", None),
            ("http://example.org:10003", None),
            ("127.0.0.1:10003", None),
            ("http://127.0.0.1:port", None),
            ("https://", None),
            ("ftp://localhost", None),
            ("http://[::1", None),
        ];
        for (url, expected) in cases {
            let actual = parse_url(url).ok();
            let actual = actual.as_ref().map(|it| (it.host.as_str(), it.port, it.encrypted));
            assert_eq!(actual, expected, "{url}");
        }
    }

    #[test]
    fn answers_are_understood() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n\r\n{\"a\":1}\n";
        assert_eq!(parse_answer(answer), Some((201, serde_json::json!({ "a": 1 }))));
        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(parse_answer(answer), Some((204, Value::Null)));
        for other in [&b""[..], b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>"] {
            assert_eq!(parse_answer(other), None);
        }
    }

    #[test]
    fn headers_are_found() {
        let head = b"HTTP/1.0 200 OK\r\nX-Rowhouse-Estimate: items=7\r\nother:1\r\n\r\n";
        assert_eq!(header(head, "x-rowhouse-estimate"), Some("items=7"));
        assert_eq!(header(head, "other"), Some("1"));
        for (head, name) in [(&head[..], "absent"), (b"", "other"), (b"\xff: 1\r\n", "other")] {
            assert_eq!(header(head, name), None);
        }
    }

    #[test]
    fn the_first_token_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        fs::write(&path, "# mine\n\nfirst read,keys\nsecond\n").unwrap();
        assert_eq!(read_token(&path), Ok("first".to_owned()));
        fs::write(&path, "# none\n").unwrap();
        assert!(read_token(&path).unwrap_err().contains("holds no token"));
        assert!(read_token(&directory.path().join("absent")).unwrap_err().contains("--data"));
    }

    proptest! {
        #[test]
        fn any_url_is_taken_or_refused(url in "(https?://)?[a-z0-9:\\[\\]./]{0,30}") {
            let _ = parse_url(&url);
        }

        #[test]
        fn any_answer_is_judged(answer in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_answer(&answer);
            let _ = parse_answer(&[b"HTTP/1.1 200 OK\r\n\r\n", answer.as_slice()].concat());
        }
    }
}
