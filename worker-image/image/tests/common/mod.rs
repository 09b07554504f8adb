//! The test image, QEMU, and a listener in the orchestrator's place.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Plain emulation on a busy machine; a boot takes 6 to 20 s on an idle one.
pub(crate) const BOOT_BOUND: Duration = Duration::from_secs(150);

/// Why boot tests cannot run here, if so.
pub(crate) fn lacking(more: &[&str]) -> Option<String> {
    if let Some(missing) = worker_image::build::missing_tools(true) {
        return Some(missing.to_string());
    }
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if qemu.is_err() {
        return Some(
            "no qemu-system-x86_64; on Debian: apt-get install --no-install-recommends qemu-system-x86".into(),
        );
    }
    more.iter().find(|path| !Path::new(path).exists()).map(|path| format!("no {path}"))
}

/// Runs the build script with the agent's stand-in; answers its report.
pub(crate) fn build_image(out: &Path, more: &[&str]) -> serde_json::Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build");
    let output = Command::new(script).args(["--stand-in", "--json", "--out"]).arg(out).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The test image, built once a test program.
pub(crate) fn image() -> &'static (PathBuf, serde_json::Value) {
    static IMAGE: OnceLock<(PathBuf, serde_json::Value)> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in.iso");
        let report = build_image(&path, &[]);
        (path, report)
    })
}

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
            .args(["-monitor", "stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, console, started: Instant::now() }
    }

    /// Gives QEMU's monitor a command.
    pub(crate) fn monitor(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
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

/// A listener in the orchestrator's place, at 10.0.2.2 for a VM with user-mode networking.
pub(crate) struct Orchestrator {
    listener: TcpListener,
}

impl Orchestrator {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://10.0.2.2:{}/api/worker/v1/session", self.listener.local_addr().unwrap().port())
    }

    /// Waits for the next report and answers it with an order.
    pub(crate) fn answer(&self, vm: &Vm, order: &str) -> String {
        let bound = Instant::now() + BOOT_BOUND;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return exchange(stream, order),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < bound, "no request within {BOOT_BOUND:?}; console:\n{}", vm.console());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn exchange(stream: TcpStream, order: &str) -> String {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream);
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => bytes = value.parse().unwrap(),
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body).unwrap();
    write!(reader.get_mut(), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{order}").unwrap();
    String::from_utf8(body).unwrap()
}
