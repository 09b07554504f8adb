//! Stands in for the worker agent in the image's boot tests: started as the agent is, it tells a plain HTTP listener what it sees and
//! then does what the answer says, which no real agent would: crash, end, or measure without a job.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use worker_image::{Bootstrap, slot};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURE: Duration = Duration::from_secs(3);
const BLOCK: usize = 4096;
/// `O_DIRECT` on x86-64 (`asm-generic/fcntl.h`).
const O_DIRECT: i32 = 0o40000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [_, slot] = arguments.as_slice() else {
        eprintln!("expected --bootstrap FILE, not {arguments:?}");
        return ExitCode::FAILURE;
    };
    let bootstrap = match fs::read(slot).map(|bytes| slot::decode(&bytes)) {
        Ok(Ok(Some(bootstrap))) => bootstrap,
        other => {
            eprintln!("no bootstrap data in {slot}: {other:?}");
            return ExitCode::FAILURE;
        }
    };
    let mut rates = String::new();
    loop {
        for url in &bootstrap.orchestrator_urls {
            match call(url, &format!("arguments {}\n{}{rates}", arguments.join(" "), report(&bootstrap))) {
                Ok(order) if order == "measure" => rates = measure(),
                Ok(order) => return obey(&order),
                Err(error) => eprintln!("cannot reach {url}: {error}"),
            }
        }
        thread::sleep(RETRY);
    }
}

/// Sends the report; answers the body's first word.
fn call(url: &str, body: &str) -> std::io::Result<String> {
    let authority = url.split('/').nth(2).unwrap_or_default();
    let address: SocketAddr = authority.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    write!(stream, "POST /stand-in HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.rsplit("\r\n\r\n").next().unwrap_or_default().trim().to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn names(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

fn disks() -> Vec<String> {
    names("/sys/block").into_iter().filter(|name| name.starts_with("sd")).collect()
}

/// A line a fact.
fn report(bootstrap: &Bootstrap) -> String {
    let Bootstrap { orchestrator_urls, ca_sha256, token, .. } = bootstrap;
    let mut report = format!("url {}\nca_sha256 {ca_sha256}\ntoken {token}\n", orchestrator_urls.join(" "));
    let _ = writeln!(report, "uuid {}", read("/sys/class/dmi/id/product_uuid"));
    let _ = writeln!(report, "uptime {}", read("/proc/uptime"));
    for line in read("/proc/meminfo").lines().take(3) {
        let _ = writeln!(report, "{line}");
    }
    for name in disks() {
        let serial = fs::read(format!("/sys/block/{name}/device/vpd_pg80")).unwrap_or_default();
        let serial = String::from_utf8_lossy(serial.get(4..).unwrap_or_default()).trim().to_owned();
        let _ = writeln!(report, "disk {name} {} {serial}", read(&format!("/sys/block/{name}/size")));
    }
    for name in names("/sys/class/net").iter().filter(|name| *name != "lo") {
        let mac = read(&format!("/sys/class/net/{name}/address"));
        let _ = writeln!(report, "net {name} {mac} mtu {}", read(&format!("/sys/class/net/{name}/mtu")));
    }
    report
}

/// Direct 4 KiB reads a second of each disk, one at a time; a line a disk.
fn measure() -> String {
    let line = |name: String| match rate(&format!("/dev/{name}")) {
        Ok(rate) => format!("rate {name} {rate:.1}\n"),
        Err(error) => format!("rate {name} {error}\n"),
    };
    disks().into_iter().map(line).collect()
}

fn rate(path: &str) -> std::io::Result<f64> {
    let disk = fs::OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path)?;
    let mut memory = vec![0; 2 * BLOCK];
    let aligned = memory.as_ptr().align_offset(BLOCK);
    let block = &mut memory[aligned..aligned + BLOCK];
    let mut reads = 0_u32;
    let mut started = Instant::now();
    let mut warm = false;
    while started.elapsed() < MEASURE {
        // A limiter lets a burst pass at first.
        if !warm && started.elapsed() > WARM_UP {
            (warm, reads, started) = (true, 0, Instant::now());
        }
        disk.read_exact_at(block, u64::from(reads % 1024) * BLOCK as u64)?;
        reads += 1;
    }
    Ok(f64::from(reads) / started.elapsed().as_secs_f64())
}

fn obey(order: &str) -> ExitCode {
    eprintln!("the orchestrator says {order:?}");
    match order {
        "crash" => std::process::abort(),
        "end" => ExitCode::SUCCESS,
        _ => {
            thread::sleep(Duration::from_secs(3600));
            ExitCode::FAILURE
        }
    }
}
