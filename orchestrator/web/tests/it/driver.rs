//! A real browser through chromedriver: what it is told, what it logs, and pictures of what it shows.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use thirtyfour::LoggingPrefsLogLevel;
use thirtyfour::prelude::*;

/// Widths of the pictures, CSS pixels: a laptop's window and a telephone.
const WIDTHS: [u32; 2] = [1280, 390];

/// No page of a test takes longer to come.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(90);

/// Between two looks for an element.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the margins of an A4 page leave, CSS pixels: 186 mm.
const PAPER_WIDTH: u32 = 703;

/// The tallest picture of what is printed.
const MAX_PAPER_HEIGHT: u64 = 6_000;

/// The tallest picture.
const MAX_HEIGHT: u64 = 2400;

/// A browser and its chromedriver; both end with it, in this order, also where a test fails.
pub(crate) struct Browser {
    pub(crate) driver: WebDriver,
    _chromedriver: Chromedriver,
    base: String,
    _profile: tempfile::TempDir,
}

struct Chromedriver {
    child: Child,
    /// Kept: what it writes to a pipe that nobody holds would end it.
    output: Option<Lines<BufReader<ChildStdout>>>,
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// None, and a line that says so, where it is not installed.
    pub(crate) async fn start(base: &str) -> Option<Self> {
        Self::start_in(base, None).await
    }

    /// In a time zone that is not this machine's.
    pub(crate) async fn start_in(base: &str, zone: Option<&str>) -> Option<Self> {
        let (Some(driver), Some(chromium)) = (find("chromedriver"), find("chromium")) else {
            println!("skipped: chromedriver and chromium are not both installed");
            return None;
        };
        let mut command = Command::new(driver);
        let command = command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped());
        // The browser has it from its driver.
        command.envs(zone.map(|zone| ("TZ", zone)));
        let mut chromedriver = Chromedriver { child: command.spawn().unwrap(), output: None };
        let output = BufReader::new(chromedriver.child.stdout.take().unwrap());
        let port = chromedriver.output.insert(output.lines()).map_while(Result::ok).find_map(|line| {
            let (_, port) = line.rsplit_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let profile = tempfile::tempdir().unwrap();
        let mut capabilities = DesiredCapabilities::chrome();
        for argument in [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--lang=en",
            // Names resolve to nothing: whatever is not this machine cannot be reached.
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            &format!("--user-data-dir={}", profile.path().display()),
        ] {
            capabilities.add_arg(argument).unwrap();
        }
        capabilities.set_binary(chromium.to_str().unwrap()).unwrap();
        capabilities.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
        // The first to install a provider has it installed; any is ring's.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let driver = WebDriver::new(format!("http://127.0.0.1:{}", port.unwrap()), capabilities).await.unwrap();
        Some(Self { driver, _chromedriver: chromedriver, base: base.to_owned(), _profile: profile })
    }

    pub(crate) async fn goto(&self, path: &str) {
        self.driver.goto(format!("{}{path}", self.base)).await.unwrap();
    }

    /// Goes in by a link of the terminal.
    pub(crate) async fn enter(&self, link: &str) {
        self.goto(link).await;
        self.click(".door button").await;
        self.arrives_at("/").await;
    }

    /// The first element of a selector, as soon as there is one.
    pub(crate) async fn find(&self, selector: &str) -> WebElement {
        let found = self.driver.query(By::Css(selector)).wait(ARRIVAL_LIMIT, LOOK_EVERY).first().await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{selector}: {error}\n{}", self.text().await),
        }
    }

    /// Types into a field, instead of what is in it.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let field = self.find(selector).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    pub(crate) async fn click(&self, selector: &str) {
        self.find(selector).await.click().await.unwrap();
    }

    /// Sends the form of an action, as Enter does.
    pub(crate) async fn submit(&self, action: &str) {
        self.click(&format!("form[action='{action}'] button:not([type=button])")).await;
    }

    pub(crate) async fn path(&self) -> String {
        self.driver.current_url().await.unwrap().path().to_owned()
    }

    /// Waits until a form or link has led there.
    pub(crate) async fn arrives_at(&self, path: &str) {
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        while self.path().await != path {
            assert!(Instant::now() < deadline, "{} instead of {path}: {}", self.path().await, self.text().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a reader sees a text: a click may return before the next page is there.
    pub(crate) async fn shows(&self, text: &str) {
        self.shows_in("body", text).await;
    }

    /// The same within an element.
    pub(crate) async fn shows_in(&self, selector: &str, text: &str) {
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        while !self.text_of(selector).await.contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in: {}", self.text().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What a reader sees.
    pub(crate) async fn text(&self) -> String {
        self.text_of("body").await
    }

    async fn text_of(&self, selector: &str) -> String {
        // A page that goes while it is read has no text any more, nor one that is just coming; whoever waits for one looks again.
        match self.driver.find(By::Css(selector)).await {
            Ok(body) => body.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// The value of an expression of the page.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let returned = self.driver.execute(format!("return {expression}"), Vec::new()).await.unwrap();
        returned.json().clone()
    }

    /// Asserts that the page has asked nobody else for anything.
    pub(crate) async fn asked_nobody_else(&self) {
        let asked = self.value("performance.getEntriesByType('resource').map((entry) => entry.name)").await;
        for url in asked.as_array().unwrap() {
            assert!(url.as_str().unwrap().starts_with(&self.base), "{url}");
        }
    }

    /// What was written to the console since the last look, the expected left out.
    pub(crate) async fn console(&self, expected: &[&str]) -> Vec<String> {
        let log = self.driver.browser_log().await.unwrap();
        let lines = log.into_iter().map(|entry| entry.message);
        lines.filter(|line| !expected.iter().any(|word| line.contains(word))).collect()
    }

    /// Pictures of the page at each width, light and dark; it must not be wider than its window, and its texts must be seen well.
    pub(crate) async fn shoot(&self, name: &str) {
        let tools = self.driver.cdp();
        let send = async |command: &str, parameters: Value| tools.send_raw(command, parameters).await.unwrap();
        for width in WIDTHS {
            let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
            send("Emulation.setDeviceMetricsOverride", metrics).await;
            for scheme in ["light", "dark"] {
                let scheme_feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
                send("Emulation.setEmulatedMedia", scheme_feature).await;
                self.driver.execute_async(include_str!("settled.js"), Vec::new()).await.unwrap();
                let needed = self.value("document.documentElement.scrollWidth").await.as_u64().unwrap();
                let height =
                    self.value("document.documentElement.scrollHeight").await.as_u64().unwrap().min(MAX_HEIGHT);
                let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
                let picture =
                    send("Page.captureScreenshot", json!({ "captureBeyondViewport": true, "clip": clip })).await;
                let picture = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
                let file = screenshots().join(format!("{name}-{width}-{scheme}.png"));
                std::fs::write(&file, picture).unwrap();
                let dim = self.driver.execute(include_str!("contrast.js"), Vec::new()).await.unwrap();
                assert_eq!(*dim.json(), json!([]), "{name}, {width} px, {scheme}: too little contrast");
                assert!(needed <= u64::from(width), "{name}: {needed} px wide in a window of {width}");
            }
        }
        send("Emulation.clearDeviceMetricsOverride", json!({})).await;
        send("Emulation.setEmulatedMedia", json!({ "features": [] })).await;
    }

    /// A picture of the page as it is printed on A4 from a dark screen; nothing may be wider than the paper, and charts have the
    /// colours of a light one.
    pub(crate) async fn shoot_print(&self, name: &str) {
        let tools = self.driver.cdp();
        let send = async |command: &str, parameters: Value| tools.send_raw(command, parameters).await.unwrap();
        let metrics = json!({ "width": PAPER_WIDTH, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        send("Emulation.setDeviceMetricsOverride", metrics).await;
        let mut inks = Vec::new();
        for scheme in ["light", "dark"] {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            send("Emulation.setEmulatedMedia", media).await;
            self.driver.execute_async(include_str!("settled.js"), Vec::new()).await.unwrap();
            inks.push(self.value("getComputedStyle(document.querySelector('.plot .xtick text')).fill").await);
        }
        // A browser says so while its medium is still the screen.
        self.driver.execute("dispatchEvent(new Event('beforeprint'));", Vec::new()).await.unwrap();
        let ink = self.value("getComputedStyle(document.querySelector('.plot .xtick text')).fill").await;
        assert!(ink == inks[0] && ink != inks[1], "{name}: {ink} on paper, on screens {inks:?}");
        send("Emulation.setEmulatedMedia", json!({ "media": "print" })).await;
        let needed = self.value("document.documentElement.scrollWidth").await.as_u64().unwrap();
        let height = self.value("document.documentElement.scrollHeight").await.as_u64().unwrap().min(MAX_PAPER_HEIGHT);
        let clip = json!({ "x": 0, "y": 0, "width": PAPER_WIDTH, "height": height, "scale": 1 });
        let picture = send("Page.captureScreenshot", json!({ "captureBeyondViewport": true, "clip": clip })).await;
        let picture = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(screenshots().join(format!("{name}.png")), picture).unwrap();
        send("Emulation.clearDeviceMetricsOverride", json!({})).await;
        send("Emulation.setEmulatedMedia", json!({ "media": "" })).await;
        assert!(needed <= u64::from(PAPER_WIDTH), "{name}: {needed} px wide on a paper of {PAPER_WIDTH}");
    }

    pub(crate) async fn end(self) {
        self.driver.clone().quit().await.unwrap();
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Where the pictures go.
fn screenshots() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let directory = target.join("screenshots");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
