//! The program: a command line, what it asks for, and one line where that fails.

use std::{io::Write, process::ExitCode};

use time::UtcOffset;

use crate::{
    api,
    config::{Arguments, Command},
    files, launch, telemetry,
};

/// Runs what the process's command line asks for, as the `tito` binary does; the process should end with what this returns.
pub fn main() -> ExitCode {
    let arguments = Arguments::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let done = files::without_panics(|| run(arguments)).unwrap_or_else(|reason| Err(anyhow::Error::msg(reason)));
    match done {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", files::one_line(&reasons(&error)));
            if error.is::<launch::SenselessFlags>() { ExitCode::from(SENSELESS) } else { ExitCode::FAILURE }
        }
    }
}

/// The exit code of a command line that makes no sense: the parser's.
const SENSELESS: u8 = 2;

/// The exit code of `tito replay` where all that was compared is equal, and that was not all. 1 is a failure, and 2 a command
/// line that makes no sense.
const PROVEN_IN_PART: u8 = 3;

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    telemetry::init_logging(&arguments.log_filter())?;
    for warning in &arguments.warnings {
        tracing::warn!("{warning}");
    }
    let done = match arguments.command {
        Command::Serve(args) => {
            // The time zone can only be asked for while there is one thread.
            let utc_offset = UtcOffset::current_local_offset().unwrap_or(UtcOffset::UTC);
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let served = runtime.block_on(launch::serve(*args, utc_offset));
            // Threads of an engine may outlive its last request; they have nothing left to say.
            runtime.shutdown_background();
            served
        }
        Command::Doctor(args) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let examined = runtime.block_on(launch::doctor(*args));
            runtime.shutdown_background();
            examined
        }
        Command::Convert { model, directory, merge: None } => launch::convert(&model, &directory),
        Command::Convert { model, directory, merge: Some(adapter) } => launch::merge(&model, &adapter, &directory),
        Command::TryKernels { set } => launch::try_kernels(&set),
        Command::Replay { file, trajectory, model } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let replayed = runtime.block_on(launch::replay(&file, trajectory.as_deref(), *model));
            runtime.shutdown_background();
            return Ok(match replayed? {
                launch::Proven::Whole => ExitCode::SUCCESS,
                launch::Proven::InPart => ExitCode::from(PROVEN_IN_PART),
            });
        }
        Command::Inspect { file, model, host, port } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(launch::inspect(&file, model.as_deref(), &host, port))
        }
        Command::Generate { what, command } => {
            std::io::stdout().write_all(&Arguments::generated(what, command.as_deref())?)?;
            Ok(())
        }
        Command::Openapi => {
            let document = api::openapi().to_pretty_json()?;
            writeln!(std::io::stdout(), "{document}")?;
            Ok(())
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// An error and its causes, each said once: many errors name their cause themselves.
fn reasons(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_says_of_its_cause_is_said_once() {
        let cause = || anyhow::anyhow!("there is no room");
        assert_eq!(reasons(&cause().context("cannot write x")), "cannot write x: there is no room");
        let telling = cause().context("cannot write x: there is no room").context("the model cannot be converted");
        assert_eq!(reasons(&telling), "the model cannot be converted: cannot write x: there is no room");
    }
}
