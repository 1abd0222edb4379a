//! A command that is run beside a measurement, with what it took.

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
pub(crate) struct Running {
    words: String,
    memory: Sampler,
    cpu_before: Duration,
    ended: JoinHandle<io::Result<(Output, Duration)>>,
}

/// A command that has done its work.
#[derive(Debug)]
pub(crate) struct Done {
    printed: Vec<u8>,
    pub(crate) took: Duration,
    /// CPU time.
    pub(crate) cpu: Duration,
    /// Most anonymous memory, in bytes.
    pub(crate) memory: u64,
}

impl Running {
    /// Starts a program.
    pub(crate) fn start<'a>(
        program: &Path,
        arguments: impl Iterator<Item = &'a OsStr>,
    ) -> io::Result<Self> {
        let mut command = guard::guarded(program)?;
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

    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_finished()
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn finish(self) -> io::Result<Done> {
        let ended = self.ended.join();
        let (output, took) = ended.map_err(|_| io::Error::other("waiting panicked"))??;
        if !output.status.success() {
            let (words, said) = (self.words, String::from_utf8_lossy(&output.stderr));
            return Err(io::Error::other(format!("{words} failed: {said}")));
        }
        let cpu = process::ended_cpu().saturating_sub(self.cpu_before);
        Ok(Done { printed: output.stdout, took, cpu, memory: self.memory.take() })
    }
}

impl Done {
    /// What it printed, which must be JSON.
    pub(crate) fn json(&self) -> io::Result<Value> {
        Ok(serde_json::from_slice(&self.printed)?)
    }
}
