//! A command of the product, with what it took.

use crate::guard;
use crate::process;
use crate::sampler::Sampler;
use serde_json::Value;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A command that is at work. It ends with this process.
pub(super) struct Running {
    words: String,
    memory: Sampler,
    cpu_before: Duration,
    ended: JoinHandle<io::Result<(Output, Duration)>>,
}

/// A command that has done its work.
#[derive(Debug)]
pub(super) struct Done {
    /// What it printed.
    pub(super) printed: Value,
    pub(super) took: Duration,
    /// CPU time.
    pub(super) cpu: Duration,
    /// Most anonymous memory, in bytes.
    pub(super) memory: u64,
}

impl Running {
    /// Starts the binary with arguments that make it print JSON.
    pub(super) fn start<'a>(
        binary: &Path,
        arguments: impl Iterator<Item = &'a OsStr>,
    ) -> io::Result<Self> {
        let mut command = guard::guarded(binary)?;
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cpu_before = process::ended_cpu();
        let began = Instant::now();
        let child = command.spawn()?;
        let memory = Sampler::watch(child.id());
        let ended = std::thread::spawn(move || {
            let output = child.wait_with_output()?;
            Ok((output, began.elapsed()))
        });
        Ok(Self { words: format!("{command:?}"), memory, cpu_before, ended })
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_finished()
    }

    /// Waits for its end, which must be a good one.
    pub(super) fn finish(self) -> io::Result<Done> {
        let ended = self.ended.join();
        let (output, took) = ended.map_err(|_| io::Error::other("waiting panicked"))??;
        if !output.status.success() {
            let (words, said) = (self.words, String::from_utf8_lossy(&output.stderr));
            return Err(io::Error::other(format!("{words} failed: {said}")));
        }
        let cpu = process::ended_cpu().saturating_sub(self.cpu_before);
        let printed = serde_json::from_slice(&output.stdout)?;
        Ok(Done { printed, took, cpu, memory: self.memory.take() })
    }
}
