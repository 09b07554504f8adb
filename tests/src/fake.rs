//! A Proxmox VE cluster that is none: fakepve, which validates PVE 9's schema, with TLS, driven through a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{Answer, Site, skip, workspace};

/// Secret of the token that the fake knows.
pub const SECRET: &str = "the-secret-of-the-token";

/// The token.
pub const TOKEN: &str = "fc@pve!poc";

/// One cluster: nodes pve1 and pve2, shared storage `ceph`, `local` for images, bridge `vmbr0`, pool `poc`. Ends when dropped.
#[derive(Debug)]
pub struct Fake {
    pipe: Mutex<Pipe>,
    /// `https://127.0.0.1:PORT`.
    pub url: String,
    /// Its certificate, PEM.
    pub certificate: PathBuf,
    /// SHA-256 of its certificate, as PVE writes it.
    pub fingerprint: String,
}

#[derive(Debug)]
struct Pipe {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pipe {
    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.stdin, "{request}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer.get("error").is_none(), "{}", answer["error"].as_str().unwrap_or_default());
        answer["ok"].clone()
    }
}

impl Fake {
    /// None, with a line that says so, where fakepve is not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let python = workspace().join("tests/.venv/bin/python");
        let installed =
            Command::new(&python).args(["-c", "import fakepve, cryptography"]).stderr(Stdio::null()).status();
        if !installed.is_ok_and(|status| status.success()) {
            skip("fakepve is not installed in tests/.venv (tests/run installs it)");
            return None;
        }
        let script = workspace().join("orchestrator/hypervisor/tests/proxmox/fakes.py");
        let mut child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut pipe = Pipe { child, stdin, stdout };
        let new = pipe.ask(&json!({ "new": {} }));
        let text = |key: &str| new[key].as_str().unwrap().to_owned();
        let digits = text("sha256").to_uppercase();
        let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
        let fake = Self {
            pipe: Mutex::new(pipe),
            url: text("url"),
            certificate: text("cert").into(),
            fingerprint: pairs.join(":"),
        };
        fake.run(
            "pve.nodes_named('pve1', 'pve2')\n\
             pve.add_ceph_storage('ceph')\n\
             pve.storages['ceph'].update(avail=1000 * 2**30, total=1000 * 2**30, volumes={})\n\
             pve.storages['local']['volumes'] = {}\n\
             pve.pools['poc'] = set()",
        );
        Some(fake)
    }

    /// Runs Python statements with `pve` in scope.
    pub fn run(&self, statements: &str) {
        self.pipe.lock().unwrap().ask(&json!({ "of": 0, "run": statements }));
    }

    /// Evaluates a Python expression with `pve` in scope.
    #[must_use]
    pub fn get(&self, expression: &str) -> Value {
        self.pipe.lock().unwrap().ask(&json!({ "of": 0, "get": expression }))
    }

    /// Everything that a test must leave as it found it.
    #[must_use]
    pub fn inventory(&self) -> Value {
        self.get("pve.inventory()")
    }

    /// Saves a connection to it, `lab`, with the command line.
    pub fn connect(&self, site: &Site) {
        self.connect_at(site, &self.url, &self.fingerprint, &[]);
    }

    /// The same by another address or fingerprint, with further options of `connect`.
    pub fn connect_at(&self, site: &Site, url: &str, fingerprint: &str, more: &[&str]) {
        let args = ["connect", url, "--name", "lab", "--fingerprint", fingerprint, "--token-env", "T"];
        let mut command = site.command(args);
        command.args(more).env("T", format!("{TOKEN}={SECRET}"));
        let answer = Answer::from(command.output().unwrap());
        assert!(answer.ok(), "{answer:?}");
    }

    /// A run by the connection `lab` of [`idle_plan`], killed once its VMs run; its id.
    #[must_use]
    pub fn killed_run(&self, site: &Site) -> String {
        let plan = site.plan(&idle_plan(site));
        let running = site.start_with(["run", plan.to_str().unwrap(), "--worker-listen", "0.0.0.0:0"]);
        site.wait_for_state("enrolling");
        running.signal(Signal::KILL);
        let _ = running.end();
        let vms = self.get("sorted((vm.vmid, vm.status) for vm in pve.vms if vm.vmid >= 90000)");
        assert_eq!(vms, json!([[90_000, "running"], [90_001, "running"]]));
        let runs = site.ask(["runs", "--json"]);
        serde_json::from_str::<Value>(&runs.stdout).unwrap()[0]["id"].as_str().unwrap().to_owned()
    }

    /// Privileges as in the recipe of docs/proxmox.md, but for these.
    pub fn grant_all_but(&self, without: &[&str]) {
        let acl: [(&str, &str); 5] = [
            ("/", "Sys.Audit"),
            (
                "/pool/poc",
                "Pool.Audit VM.Allocate VM.Audit VM.Config.CDROM VM.Config.CPU VM.Config.Disk VM.Config.HWType \
                 VM.Config.Memory VM.Config.Network VM.Config.Options VM.PowerMgmt",
            ),
            ("/storage/ceph", "Datastore.Allocate Datastore.AllocateSpace Datastore.Audit"),
            ("/storage/local", "Datastore.Allocate Datastore.AllocateTemplate Datastore.Audit"),
            ("/sdn/zones/localnetwork/vmbr0", "SDN.Use"),
        ];
        self.run("pve.acl = {}");
        for (path, privileges) in acl {
            let kept = privileges.split_whitespace().filter(|privilege| !without.contains(privilege));
            let list: Vec<String> = kept.map(|privilege| format!("{privilege:?}")).collect();
            self.run(&format!("pve.grant({TOKEN:?}, {path:?}, *[{}])", list.join(", ")));
        }
    }
}

/// A plan whose workers boot an image that no fake VM runs, so that none of them ever enrols.
#[must_use]
pub fn idle_plan(site: &Site) -> String {
    let image = site.path().join("image.iso");
    // As much of an image as making it personal asks for.
    let mut bytes = vec![7; 4096];
    bytes.extend(format!("{:16384}", "FOURCORNERS-WORKER-BOOTSTRAP-SLOT-1\n").bytes());
    std::fs::write(&image, bytes).unwrap();
    format!(
        "name: left behind\ntarget: {{provider: proxmox, connection: lab, storage: ceph, iso_storage: local, bridge: vmbr0, \
         pool: poc, image: '{}'}}\ncanary: false\nworkers: {{count: 2, vcpus: 1, memory: 512MiB, disks: 2}}\nfootprints: [4GiB]\n\
         precondition: 1s\nsample: 1s\nworkloads: [4k-random-read]\n",
        image.display()
    )
}
