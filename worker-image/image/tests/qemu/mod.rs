//! QEMU with the image, driven directly.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::BOOT_BOUND;

/// A running QEMU; killed when dropped.
pub(crate) struct Vm {
    child: Child,
    pub(crate) console: PathBuf,
    pub(crate) started: Instant,
}

impl Vm {
    /// Boots an ISO with plain emulation, one CPU and 256 MiB.
    pub(crate) fn boot(iso: &Path, dir: &Path, machine: &str, more: &[String]) -> Self {
        let console = dir.join("console.log");
        let child = Command::new("qemu-system-x86_64")
            .args([
                "-accel",
                "tcg,thread=multi",
                "-smp",
                "1",
                "-m",
                "256",
                "-display",
                "none",
                "-nodefaults",
                "-vga",
                "std",
            ])
            .args(["-machine", machine, "-uuid", "00112233-4455-6677-8899-aabbccddeeff"])
            .args(["-drive", &format!("if=none,id=cd,media=cdrom,readonly=on,file={}", iso.display())])
            .args(["-device", "ide-cd,drive=cd,bus=ide.1", "-serial", &format!("file:{}", console.display())])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, console, started: Instant::now() }
    }

    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).replace('\r', "")
    }

    /// Waits until the console shows all of `wanted`.
    pub(crate) fn shows(&mut self, wanted: &[&str]) {
        self.wait(&format!("{wanted:?} on the console"), |vm| {
            let console = vm.console();
            wanted.iter().all(|text| console.contains(text))
        });
    }

    /// Waits until it has turned itself off.
    pub(crate) fn ends(&mut self) {
        self.wait("the machine's end", |vm| vm.child.try_wait().unwrap().is_some());
    }

    fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let bound = Instant::now() + BOOT_BOUND;
        while !done(self) {
            assert!(Instant::now() < bound, "no {what} within {BOOT_BOUND:?}; console:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
