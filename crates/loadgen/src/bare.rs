//! A server that only answers: the practical limit of the HTTP library on this machine.
//!
//! The same library and the same runtime as the product's, with nothing behind: a GET gets a fixed entity of 400
//! bytes, anything with a body gets 204 once the body is read. What the product reaches of its rate is the share
//! that the rest of the work leaves.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use tokio::net::TcpListener;

/// Length of the answer to a GET, in bytes.
pub(crate) const ANSWER_BYTES: usize = 400;

/// Serves until the process ends.
pub(crate) fn serve(port: u16) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                // How a connection ends is the client's business.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            });
        }
    })
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn answer(request: Request<Incoming>) -> Result<Answer, hyper::Error> {
    if request.method() == Method::GET {
        let body = Full::new(Bytes::from_static(ENTITY.as_bytes())).boxed();
        let kind = ("content-type", "application/json;odata=minimalmetadata;charset=utf-8");
        let response = Response::builder().header(kind.0, kind.1).body(body);
        return Ok(response.expect("the header is valid"));
    }
    request.into_body().collect().await?;
    let response = Response::builder().status(StatusCode::NO_CONTENT).body(Empty::new().boxed());
    Ok(response.expect("a status is valid"))
}

const ENTITY: &str = concat!(
    r#"{"PartitionKey":"p0000000","RowKey":"r0000000","Name":"Customer 0000000000","#,
    r#""City":"Little Rowhouse upon Sea 000","Number":0,"Bucket":0,"Active":true,"#,
    r#""Visits@odata.type":"Edm.Int64","Visits":"0","Since@odata.type":"Edm.DateTime","#,
    r#""Since":"2024-01-01T08:30:00Z","Id@odata.type":"Edm.Guid","#,
    r#""Id":"00000000-1c2d-4e5f-8a9b-000000000000","Note":"as agreed......................................","Score":0.5}"#,
);

const _: () = assert!(ENTITY.len() == ANSWER_BYTES);
