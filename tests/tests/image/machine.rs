//! A worker VM in QEMU under software emulation, its console, and its monitor.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A boot takes 7 to 20 s of an idle CPU; a busy machine runs several at once, and other tests beside them.
pub(crate) const BOUND: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) const UEFI_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
pub(crate) const UEFI_VARS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// A running VM; killed when dropped.
pub(crate) struct Vm {
    child: Child,
    console: PathBuf,
    monitor: BufReader<UnixStream>,
    pub(crate) started: Instant,
}

impl Vm {
    /// Boots an image with one CPU and 256 MiB; `more` are QEMU's options for network and disks.
    pub(crate) async fn boot(image: &Path, dir: &Path, machine: &str, uuid: &str, more: &[String]) -> Self {
        let (console, socket, log) = (dir.join("console.log"), dir.join("qmp"), dir.join("qemu.log"));
        let started = Instant::now();
        let mut child = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg,thread=multi", "-smp", "1", "-m", "256", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-vga", "std", "-machine", machine, "-uuid", uuid])
            .args(["-drive", &format!("if=none,id=cd,media=cdrom,readonly=on,format=raw,file={}", image.display())])
            .args(["-device", "ide-cd,drive=cd,bus=ide.1,bootindex=0", "-device", "virtio-rng-pci"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let monitor = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "QEMU ended ({ended:?}): {}", fs::read_to_string(&log).unwrap());
            assert!(started.elapsed() < BOUND, "QEMU's monitor does not answer");
            tokio::time::sleep(LOOK).await;
        };
        monitor.set_read_timeout(Some(BOUND)).unwrap();
        let mut vm = Self { child, console, monitor: BufReader::new(monitor), started };
        vm.line();
        vm.monitor("qmp_capabilities", &json!({}));
        vm
    }

    /// Gives the monitor a command and waits until it is taken.
    pub(crate) fn monitor(&mut self, command: &str, arguments: &Value) {
        let text = json!({ "execute": command, "arguments": arguments });
        writeln!(self.monitor.get_mut(), "{text}").unwrap();
        loop {
            let said = self.line();
            assert!(said.get("error").is_none(), "{command}: {said}");
            if said.get("return").is_some() {
                return;
            }
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.monitor.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Plugs or unplugs the cable of a network card.
    pub(crate) fn set_link(&mut self, card: &str, up: bool) {
        self.monitor("set_link", &json!({ "name": card, "up": up }));
    }

    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).replace('\r', "")
    }

    /// Waits until the console shows all of these, since the place `from`. Answers where it ends now.
    pub(crate) async fn shows(&mut self, from: usize, wanted: &[&str]) -> usize {
        let until = Instant::now() + BOUND;
        loop {
            let console = self.console();
            let new = console.get(from..).unwrap_or_default();
            let missing: Vec<_> = wanted.iter().filter(|text| !new.contains(**text)).collect();
            if missing.is_empty() {
                return console.len();
            }
            assert!(Instant::now() < until, "{missing:?} is not on the console within {BOUND:?}:\n{console}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until it has turned itself off.
    pub(crate) async fn ends(&mut self) {
        let until = Instant::now() + BOUND;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end within {BOUND:?}:\n{}", self.console());
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Options for a card on QEMU's user-mode network.
pub(crate) fn user_network(mac: &str) -> Vec<String> {
    ["-netdev", "user,id=user", "-device", &format!("virtio-net-pci,netdev=user,mac={mac},romfile=")]
        .map(str::to_owned)
        .to_vec()
}

/// Options for data disks of 64 MiB and one more each, every one on a controller of its own.
pub(crate) fn disks(dir: &Path, count: u32) -> Vec<String> {
    let disk = |number: u32| {
        let file = dir.join(format!("{number}.img"));
        fs::File::create(&file).unwrap().set_len(disk_bytes(number)).unwrap();
        let (slot, function) = (0x10 + number / 8, number % 8);
        [
            ("-device", format!("virtio-scsi-pci,id=s{number},addr={slot:#x}.{function},multifunction=on")),
            ("-drive", format!("if=none,format=raw,id=d{number},file={}", file.display())),
            ("-device", format!("scsi-hd,bus=s{number}.0,drive=d{number},serial={}", serial(number))),
        ]
    };
    (0..count).flat_map(disk).flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

pub(crate) fn serial(disk: u32) -> String {
    format!("FC-{disk:02}")
}

pub(crate) fn disk_bytes(disk: u32) -> u64 {
    (64 + u64::from(disk)) << 20
}
