//! How much memory the system could still give to this process.

use std::fs;

/// What a container may take: its own view of the second version of control groups, then of the first.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Returns the bytes that the system could still give, where it says so.
pub fn available() -> Option<u64> {
    let available = stated(&["MemAvailable:"])?;
    Some(limit().map_or(available, |limit| limit.min(available)))
}

/// Returns the sum of some lines of the system's report; `None` without such a report.
pub fn stated(lines: &[&str]) -> Option<u64> {
    sum(&fs::read_to_string("/proc/meminfo").ok()?, lines)
}

fn sum(text: &str, lines: &[&str]) -> Option<u64> {
    let bytes = |name: &&str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    lines.iter().map(bytes).sum()
}

/// Returns what a container may take, where it is bounded.
pub fn limit() -> Option<u64> {
    LIMITS.iter().find_map(|path| fs::read_to_string(path).ok())?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_report_is_read_as_it_is_written() {
        assert_eq!(sum("MemFree: 5 kB\nMemTotal:       24 kB\n", &["MemTotal:"]), Some(24 * 1024));
        assert_eq!(sum("MemFree: 5 kB\n", &["MemTotal:"]), None);
    }
}
