//! What to do about a failed request: the error as a sentence with the next step in it.

use crate::Failure;
use rowhouse_client::{Client, ClientError, ServiceError, TransferError};
use rowhouse_types::Service;
use std::io::ErrorKind;

/// Most tables whose names are compared with a misspelled one.
const NAMES_MAX: usize = 10_000;

/// The error with advice. Asks the service once more where that tells more: which tables there are.
pub(crate) async fn advise(client: &Client, error: &TransferError, hint: &str) -> Failure {
    let TransferError::Client(ClientError::Service(refused)) = error else {
        return sentence(client, error);
    };
    let (names, list) = match refused.code.as_str() {
        "TableNotFound" => (client.tables().await, "'rowhouse table list' shows the tables"),
        "QueueNotFound" => (client.queues().await, "'rowhouse queue list' shows the queues"),
        _ => return sentence(client, error),
    };
    let (wanted, names) =
        (refused.resource.as_deref().unwrap_or_default(), names.unwrap_or_default());
    let next = match similar(wanted, names.iter().take(NAMES_MAX)) {
        Some(name) => format!("did you mean {name}?{hint}"),
        None => format!("{list}{hint}"),
    };
    format!("{error}: {next}")
}

/// The error with advice that needs no further request.
pub(crate) fn sentence(client: &Client, error: &TransferError) -> Failure {
    let error = match error {
        TransferError::Client(error) => error,
        TransferError::File { error: cause, .. } if cause.kind() == ErrorKind::StorageFull => {
            return format!("{error}: make room, then give the command again with --resume");
        }
        error => return error.to_string(),
    };
    let advice = match error {
        ClientError::Unreachable { .. } => "check the address, and that the server runs",
        ClientError::Certificates(_) => {
            "name a file with the authority that vouches for it in SSL_CERT_FILE"
        }
        ClientError::NotHttp(_) => "if it speaks TLS, write https:// in the endpoint",
        ClientError::NotTls(_) => "write http:// in the endpoint, or check the port",
        ClientError::Service(refused) => return of_refusal(client, refused),
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

fn of_refusal(client: &Client, refused: &ServiceError) -> Failure {
    let address = client.address();
    let (wanted, usual) = match client.kind() {
        Service::Table => ("Table", "tables are at 10002 by default"),
        Service::Queue => ("Queue", "queues are at 10001 by default"),
    };
    if let Some(kind) = other_service(&refused.server, wanted) {
        return format!(
            "what answers at {address} is a {kind} service, not a {wanted} service: check the port ({usual})"
        );
    }
    let is_known = refused.server.contains(&format!("-{wanted}/")) || !refused.code.is_empty();
    if refused.status == 404 && !is_known {
        return format!(
            "what answers at {address} is not a {wanted} service: check the port ({usual})"
        );
    }
    let advice = match (refused.status, refused.code.as_str()) {
        (400..=499 | 501, _) if refused.is_extension && is_unknown(refused) => {
            "this service does not have that: it runs with --strict, or it is not a Rowhouse"
        }
        (401 | 403, _) if client.is_development() => {
            "this server has no account devstoreaccount1 with the public key: name your account with \
             --connection or ROWHOUSE_CONNECTION"
        }
        (401 | 403, _) => "check the key, or what the shared access signature allows",
        (409, "TableBeingDeleted") => "try again when the service has deleted it",
        _ => return refused.to_string(),
    };
    format!("{refused}: {advice}")
}

/// The kind of service, if it is one of the protocol's others: Rowhouse, Azurite and Azure name it in a header.
fn other_service(server: &str, wanted: &str) -> Option<&'static str> {
    let kinds = ["Table", "Queue", "Blob", "File"].into_iter().filter(|kind| *kind != wanted);
    kinds.into_iter().find(|kind| server.contains(&format!("-{kind}/")))
}

/// Whether a refusal means that the service does not know an extension at all.
fn is_unknown(refused: &ServiceError) -> bool {
    match refused.code.as_str() {
        "InvalidQueryParameterValue" | "NotImplemented" => true,
        "TableNotFound"
        | "ResourceNotFound"
        | "AuthenticationFailed"
        | "AuthorizationFailure"
        | "AuthorizationPermissionMismatch" => false,
        // The answer to a path that only counts have.
        "InvalidInput" if refused.message.starts_with("Bad Request - Error in query syntax") => {
            true
        }
        _ => !refused.server.starts_with("Rowhouse"),
    }
}

/// The name that was probably meant: the same but for case, or one or two characters away.
pub(crate) fn similar<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a String>,
) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let most = (wanted.len() / 4).clamp(1, 2);
    let far =
        names.into_iter().map(|name| (distance(&wanted, &name.to_lowercase()), name.as_str()));
    far.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

/// How many characters have to be changed, added or removed to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, of_a) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, of_b) in b.iter().enumerate() {
            let changed = corner + usize::from(of_a != *of_b);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_names_are_recognised() {
        let names = ["People", "Orders", "Log"].map(str::to_owned);
        for (wanted, expected) in [
            ("Peeple", Some("People")),
            ("people", Some("People")),
            ("Order", Some("Orders")),
            ("Lag", Some("Log")),
            ("Logs2", None),
            ("Nope", None),
        ] {
            assert_eq!(similar(wanted, &names), expected, "{wanted}");
        }
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn refusals_say_what_to_do() {
        let client = |target: &str| Client::new(&target.parse().unwrap()).unwrap();
        let development = client("UseDevelopmentStorage=true");
        let own = client("AccountName=a;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:1/a");
        let refused = |status, code: &str, server: &str, is_extension| ServiceError {
            status,
            code: code.to_owned(),
            server: server.to_owned(),
            is_extension,
            ..ServiceError::default()
        };
        let cases = [
            (
                &own,
                refused(403, "AuthenticationFailed", "Rowhouse-Queue/1", false),
                "a Queue service",
            ),
            (&own, refused(403, "X", "Windows-Azure-Queue/1.0 M/2", false), "a Queue service"),
            (&own, refused(404, "", "", false), "not a Table service: check the port"),
            (&own, refused(404, "", "nginx", true), "not a Table service: check the port"),
            (
                &own,
                refused(403, "AuthenticationFailed", "Rowhouse-Table/1", false),
                "check the key",
            ),
            (
                &development,
                refused(403, "A", "Rowhouse-Table/1", false),
                "no account devstoreaccount1",
            ),
            (
                &own,
                refused(400, "InvalidQueryParameterValue", "Rowhouse-Table/1", true),
                "--strict",
            ),
            (&own, refused(400, "InvalidInput", "Windows-Azure-Table/1.0", true), "not a Rowhouse"),
            (&own, refused(403, "AuthenticationFailed", "Azurite-Table/3", true), "check the key"),
        ];
        for (client, refused, expected) in cases {
            let found = of_refusal(client, &refused);
            assert!(found.contains(expected), "{refused:?}: {found}");
        }
        let plain = refused(400, "InvalidInput", "Rowhouse-Table/1", true);
        assert_eq!(of_refusal(&own, &plain), "InvalidInput (status 400)");
    }
}
