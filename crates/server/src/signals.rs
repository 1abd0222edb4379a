//! Signals: the first asks for an orderly end, the second is not asked twice.

use std::io;

/// Resolves at the first request to stop.
///
/// From then on another one ends the process at once, without draining; what was acknowledged is on
/// disk.
#[cfg(unix)]
pub(crate) fn stop_requested() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("stopped at once by a second signal");
            std::process::exit(130);
        });
    })
}

/// Resolves at the first request to stop.
#[cfg(not(unix))]
pub(crate) fn stop_requested() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
