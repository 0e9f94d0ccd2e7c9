//! What the system says about this process, under the names of Prometheus's clients; nothing where it says nothing.

use std::fs;

use super::exposition::write_single;

/// Ticks a second of the times in `/proc/self/stat`, the same on every Linux.
const TICKS: f64 = 100.0;

/// Writes the families.
pub(super) fn write(text: &mut String) {
    let stat = Stat::read();
    if let Some(stat) = &stat {
        let (name, help) = ("process_virtual_memory_bytes", "Virtual memory size in bytes.");
        write_single(text, name, "gauge", help, stat.virtual_bytes);
    }
    if let Some(bytes) = resident_bytes() {
        let (name, help) = ("process_resident_memory_bytes", "Resident memory size in bytes.");
        write_single(text, name, "gauge", help, bytes);
    }
    if let Some(stat) = &stat {
        if let Some(boot) = boot_time() {
            let (name, help) = ("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
            write_single(text, name, "gauge", help, boot + stat.started_after);
        }
        let (name, help) = ("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.");
        write_single(text, name, "counter", help, stat.cpu_seconds);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        #[expect(clippy::cast_precision_loss, reason = "no process has 2^52 files")]
        let open = files.count() as f64;
        write_single(text, "process_open_fds", "gauge", "Number of open file descriptors.", open);
    }
    if let Some(most) = max_files() {
        write_single(text, "process_max_fds", "gauge", "Maximum number of open file descriptors.", most);
    }
}

struct Stat {
    virtual_bytes: f64,
    cpu_seconds: f64,
    /// Seconds after the machine.
    started_after: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is a name in parentheses, which may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            virtual_bytes: field(23)?,
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            started_after: field(22)? / TICKS,
        })
    }
}

fn resident_bytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn max_files() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}
