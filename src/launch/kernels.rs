//! Which kernels do not work on this machine, found out before one of them is chosen.
//!
//! A processor that refuses an instruction ends the process that tried it, so each set of kernels is tried in a process
//! of its own: this program again, with `try-kernels` for its command.

use std::{
    io::Write,
    process::{Output, Stdio},
};

use anyhow::{Context, bail};

use crate::engine::native::{self, KernelName, KernelSet};

/// What a process that tried kernels writes when all is well: nobody else does, whatever program it is.
const PASSED: &str = "the kernels compute what they should";

/// What became of a trial.
#[derive(Debug, PartialEq)]
enum Verdict {
    Usable,
    /// The reason why it is not.
    Unusable(String),
    /// The process could not be started, or was no trial.
    Untried,
}

/// What `--kernels` names.
pub(super) fn parse_name(name: &str) -> anyhow::Result<KernelName> {
    KernelName::parse(name).with_context(|| {
        let names: Vec<&str> = KernelName::ALL.into_iter().map(KernelName::as_str).collect();
        format!("--kernels {name} is none of {}", names.join(", "))
    })
}

/// Tries the sets that this machine has, the fastest first, until one works; those that do not are named in the log.
/// The set that was asked for has to work.
pub(super) async fn unusable(asked: Option<KernelName>) -> anyhow::Result<Vec<KernelSet>> {
    if let Some(denied) = KernelName::denied().filter(|denied| asked.is_none_or(|asked| asked == *denied)) {
        tracing::warn!("the kernels {denied} are not used: the system does not permit their instructions");
    }
    let mut unusable = Vec::new();
    for set in KernelSet::available().into_iter().filter(|set| asked.is_none_or(|asked| asked == set.name())) {
        match verdict(set).await {
            Verdict::Usable | Verdict::Untried => break,
            Verdict::Unusable(reason) if asked.is_some() => bail!("--kernels {set} cannot be used: {reason}"),
            Verdict::Unusable(reason) => {
                tracing::warn!("the kernels {set} are not used: {reason}");
                unusable.push(set);
            }
        }
    }
    Ok(unusable)
}

async fn verdict(set: KernelSet) -> Verdict {
    // Nothing is slower, and nothing else is left.
    if set == KernelSet::PORTABLE {
        return Verdict::Usable;
    }
    let tried = tokio::task::spawn_blocking(move || {
        std::process::Command::new(std::env::current_exe()?)
            .args(["try-kernels", set.name().as_str()])
            .stdin(Stdio::null())
            .output()
    });
    match tried.await {
        Ok(Ok(output)) => judge(&output),
        _ => Verdict::Untried,
    }
}

/// What the end of a trial says.
fn judge(output: &Output) -> Verdict {
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&output.status) {
        return Verdict::Unusable(format!("a process that tried them was ended by signal {signal}"));
    }
    if output.status.success() {
        return if out.trim() == PASSED { Verdict::Usable } else { Verdict::Untried };
    }
    let reason = errors.lines().rev().find_map(|line| line.strip_prefix("error: "));
    match reason {
        Some(reason) => Verdict::Unusable(reason.to_owned()),
        None => Verdict::Unusable(format!("a process that tried them ended with {}", output.status)),
    }
}

/// The command of the process that tries a set.
pub fn try_kernels(name: &str) -> anyhow::Result<()> {
    native::try_kernels(parse_name(name)?)?;
    writeln!(std::io::stdout(), "{PASSED}")?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    use super::*;

    fn output(status: i32, out: &str, errors: &str) -> Output {
        Output { status: ExitStatus::from_raw(status), stdout: out.into(), stderr: errors.into() }
    }

    #[test]
    fn only_a_process_that_says_so_has_passed() {
        assert_eq!(judge(&output(0, &format!("{PASSED}\n"), "")), Verdict::Usable);
        assert_eq!(judge(&output(0, "running 0 tests\n", "")), Verdict::Untried);
    }

    #[test]
    fn a_refused_instruction_and_a_difference_are_told() {
        let Verdict::Unusable(reason) = judge(&output(libc::SIGILL, "", "")) else { panic!() };
        assert!(reason.contains("signal 4"), "{reason}");
        let failed = output(1 << 8, "", "a warning\nerror: the kernels amx are wrong on this machine: a product\n");
        let Verdict::Unusable(reason) = judge(&failed) else { panic!() };
        assert_eq!(reason, "the kernels amx are wrong on this machine: a product");
        let Verdict::Unusable(reason) = judge(&output(3 << 8, "", "")) else { panic!() };
        assert!(reason.contains("exit status: 3"), "{reason}");
    }
}
