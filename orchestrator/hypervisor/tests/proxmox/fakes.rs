//! A fakepve of its own for each test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hypervisor::proxmox::{Guard, Proxmox, Settings, Timing, Token};
use hypervisor::{Bootstrap, CreatedWorker, Deployment, DiskSpec, Hypervisor, HypervisorError, Image, WorkerSpec};
use serde_json::{Value, json};

#[path = "../memory/mod.rs"]
pub(crate) mod memory;

pub(crate) use memory::Memory;

/// GiB in bytes.
pub(crate) const GIB: u64 = 1 << 30;
/// Secret of the token that every fake knows.
pub(crate) const SECRET: &str = "the-secret-of-the-token";
/// The token.
pub(crate) const TOKEN: &str = "fc@pve!poc";

/// The process that runs all fakes of this test binary; it ends with us.
struct Fakes {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

static FAKES: OnceLock<Option<Mutex<Fakes>>> = OnceLock::new();

fn start_fakes() -> Option<Mutex<Fakes>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("tests/.venv/bin/python");
    let installed = Command::new(&python).args(["-c", "import fakepve, cryptography"]).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        return None;
    }
    let script = root.join("orchestrator/hypervisor/tests/proxmox/fakes.py");
    let mut child =
        Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
    let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    Some(Mutex::new(Fakes { _child: child, stdin, stdout: BufReader::new(stdout) }))
}

fn ask(request: &Value) -> Option<Value> {
    let fakes = FAKES.get_or_init(start_fakes).as_ref()?;
    let mut fakes = fakes.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(fakes.stdin, "{request}").expect("the fakes live");
    let mut line = String::new();
    fakes.stdout.read_line(&mut line).expect("the fakes live");
    let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    assert!(answer.get("error").is_none(), "{}", answer["error"].as_str().unwrap_or_default());
    Some(answer["ok"].clone())
}

/// One fake cluster: nodes pve1 and pve2, shared storage `ceph`, `local` for ISOs.
pub(crate) struct Fake {
    number: u64,
    pub(crate) url: String,
    pub(crate) certificate: PathBuf,
    pub(crate) sha256: String,
}

impl Fake {
    /// None, with a line that says so, where fakepve is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(new) = ask(&json!({ "new": {} })) else {
            println!("skipped: fakepve is not installed in tests/.venv (tests/run installs it)");
            return None;
        };
        let text = |key: &str| new[key].as_str().expect("a string").to_owned();
        let number = new["of"].as_u64().expect("a number");
        let fake = Self { number, url: text("url"), certificate: text("cert").into(), sha256: text("sha256") };
        fake.run(
            "pve.nodes_named('pve1', 'pve2')\n\
             pve.add_ceph_storage('ceph')\n\
             pve.storages['ceph'].update(avail=1000 * 2**30, total=1000 * 2**30, volumes={})\n\
             pve.storages['local']['volumes'] = {}",
        );
        Some(fake)
    }

    /// Runs Python statements with `pve` in scope.
    pub(crate) fn run(&self, statements: &str) {
        ask(&json!({ "of": self.number, "run": statements }));
    }

    /// Evaluates a Python expression with `pve` in scope.
    pub(crate) fn get(&self, expression: &str) -> Value {
        ask(&json!({ "of": self.number, "get": expression })).expect("running")
    }

    pub(crate) fn inventory(&self) -> Value {
        self.get("pve.inventory()")
    }

    /// Requests so far whose method and path fit.
    pub(crate) fn requests(&self, method: &str, path_end: &str) -> usize {
        let count = format!("sum(1 for m, p, b in pve.requests if m == {method:?} and p.endswith({path_end:?}))");
        usize::try_from(self.get(&count).as_u64().expect("a count")).expect("small")
    }

    pub(crate) fn settings(&self) -> Settings {
        serde_json::from_value(json!({
            "endpoint": self.url, "token": { "id": TOKEN }, "tls": { "ca_file": self.certificate },
            "storage": "ceph", "iso_storage": "local", "bridge": "vmbr0", "vmids": { "first": 9000, "last": 9999 },
        }))
        .expect("settings")
    }

    pub(crate) fn provider(&self) -> Proxmox {
        self.provider_with(|_| {})
    }

    pub(crate) fn provider_with(&self, change: impl FnOnce(&mut Settings)) -> Proxmox {
        let mut settings = self.settings();
        change(&mut settings);
        let token = Token::new(TOKEN, SECRET).expect("a token");
        Proxmox::new(settings, Guard::default(), token, quick()).expect("a provider")
    }

    pub(crate) fn provider_timed(&self, timing: Timing) -> Proxmox {
        let token = Token::new(TOKEN, SECRET).expect("a token");
        Proxmox::new(self.settings(), Guard::default(), token, timing).expect("a provider")
    }

    pub(crate) fn provider_guarded(&self, guard: Guard) -> Proxmox {
        let token = Token::new(TOKEN, SECRET).expect("a token");
        Proxmox::new(self.settings(), guard, token, quick()).expect("a provider")
    }
}

/// Short bounds.
pub(crate) fn quick() -> Timing {
    Timing {
        answer: Duration::from_secs(20),
        retry_first: Duration::from_millis(20),
        retry_longest: Duration::from_millis(200),
        retry_within: Duration::from_secs(3),
        poll_first: Duration::from_millis(10),
        poll_longest: Duration::from_millis(100),
        task: Duration::from_secs(30),
        in_flight: Duration::from_millis(400),
        vmid_view: Duration::from_secs(5),
        ..Timing::default()
    }
}

/// A worker with `disks` data disks of 3 GiB.
pub(crate) fn spec(number: u32, host: &str, image: &str, disks: u32) -> WorkerSpec {
    WorkerSpec {
        name: format!("w{number}"),
        uuid: format!("6a1c0000-0000-4000-8000-{number:012x}"),
        fleet: "fleet-7".into(),
        vcpus: 2,
        memory_bytes: 1 << 30,
        disks: (1..=disks).map(|disk| DiskSpec { serial: format!("w{number}-d{disk}"), size_bytes: 3 * GIB }).collect(),
        host: Some(host.into()),
        image: Some(image.into()),
    }
}

/// A file to upload as the image.
pub(crate) fn image_file() -> (tempfile::TempDir, Image) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("worker.iso");
    std::fs::write(&path, vec![7_u8; 100_000]).expect("written");
    let image = Image { path, digest: "0123456789abcdef".into(), fleet: "fleet-7".into() };
    (dir, image)
}

/// Uploads the image, creates the workers and starts them, all at a time.
pub(crate) async fn provision(
    provider: &Proxmox,
    workers: u32,
    disks: u32,
    journal: &Memory,
) -> Result<Vec<CreatedWorker>, HypervisorError> {
    let (_dir, image) = image_file();
    let hosts: Vec<String> = provider.place(workers).await?.into_iter().flatten().collect();
    let name = provider.upload_image(&image, &hosts, journal).await?.expect("an image");
    let one = |(number, host): (u32, &String)| {
        let spec = spec(number, host, &name, disks);
        async move {
            let worker = provider.create_worker(&spec, journal).await?;
            provider.start_worker(&worker, &bootstrap(), journal).await?;
            Ok(worker)
        }
    };
    futures_util::future::try_join_all((1..).zip(&hosts).map(one)).await
}

pub(crate) fn bootstrap() -> Bootstrap {
    Bootstrap { urls: Vec::new(), ca_sha256: String::new(), token: String::new() }
}

pub(crate) fn deployment(workers: u32) -> Deployment {
    Deployment { workers, disks_per_worker: 2, disk_bytes: 3 * GIB, vcpus: 1, memory_bytes: GIB }
}
