//! Starts a program that ends with us, however we end.
//!
//! The tool starts servers, and must leave none behind when it is interrupted or killed. A server is started
//! through this tool once more, which asks the kernel to be killed with its parent and then becomes the server.

use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes the program. Returns only if that fails.
pub(crate) fn become_program(parent: u32, command: &[OsString]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::other("there is no program to start");
    };
    if let Err(fault) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return fault.into();
    }
    // The parent may have ended before the kernel was asked.
    let alive =
        rustix::process::getppid().is_some_and(|pid| pid.as_raw_pid().cast_unsigned() == parent);
    if !alive {
        return io::Error::other("whoever started this has ended");
    }
    Command::new(program).args(arguments).exec()
}

/// A command that starts the program so. To be spawned by the main thread: the kernel watches the thread.
pub(crate) fn guarded(program: impl Into<OsString>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("guard").arg(std::process::id().to_string()).arg("--").arg(program.into());
    // The kernel sends SIGHUP to what is paused when its group has lost the shell that started it, and a server would end.
    command.process_group(0);
    Ok(command)
}
