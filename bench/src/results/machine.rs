//! The machine of a run.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// The machine on which figures were measured, and how busy it was.
#[derive(Clone, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// The cores that this process may use.
    pub cores: usize,
    /// True for a virtual machine: others may share its processors.
    pub virtual_machine: bool,
    pub memory_gib: f64,
    pub kernel: String,
    /// The load averages of the last 1, 5 and 15 minutes when the run began.
    pub load_at_start: [f64; 3],
}

impl Machine {
    /// Reads the present state of this machine.
    pub fn now() -> Self {
        let cpu_info = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_kib = field(&memory, "MemTotal").and_then(|value| value.split(' ').next()?.parse::<f64>().ok());
        let load = read_to_string("/proc/loadavg").unwrap_or_default();
        let mut load = load.split(' ').map(|value| value.parse().unwrap_or(0.0));
        Self {
            cpu: field(&cpu_info, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: field(&cpu_info, "flags").is_some_and(|flags| flags.contains("hypervisor")),
            memory_gib: (memory_kib.unwrap_or(0.0) / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            load_at_start: std::array::from_fn(|_| load.next().unwrap_or(0.0)),
        }
    }

    /// Returns the machine in one line.
    pub fn line(&self) -> String {
        format!(
            "{}{}, {} cores, {:.0} GiB, Linux {}; load average at the start {:.2}, {:.2}, {:.2}",
            self.cpu,
            if self.virtual_machine { " (virtual machine)" } else { "" },
            self.cores,
            self.memory_gib,
            self.kernel,
            self.load_at_start[0],
            self.load_at_start[1],
            self.load_at_start[2],
        )
    }
}

/// Returns the first value in a file of `name : value` lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}
