//! A real browser through its own driver, and the server that it looks at.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use end_to_end::{Site, skip, wait_for, workspace};
use serde_json::{Value, json};
use thirtyfour::prelude::*;

/// No condition of these tests takes longer, on a busy machine either.
const BOUND: Duration = Duration::from_secs(120);
/// No page has more places for the focus.
const MAX_STOPS: usize = 150;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Looks again and again until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, look: impl Fn() -> F) {
    let end = Instant::now() + BOUND;
    while !look().await {
        assert!(Instant::now() < end, "{what}: not within {BOUND:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// `fourcorners serve` with its links; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) origin: String,
    /// The path of the set-up link.
    pub(crate) set_up: String,
}

impl Server {
    pub(crate) fn start(site: &Site) -> Self {
        Self::of(&mut site.command(["serve", "--listen", "127.0.0.1:0"]))
    }

    /// Of a command that serves.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut text = String::new();
        let link = wait_for("the set-up link", || {
            let line = lines.next().unwrap_or_else(|| panic!("the server ended: {text}")).unwrap();
            text.push_str(&line);
            line.find("/setup/").map(|_| line.trim().to_owned())
        });
        let place = link.find("/setup/").unwrap();
        Self { child, origin: link[..place].to_owned(), set_up: link[place..].to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// chromedriver; killed when dropped.
pub(crate) struct Driver {
    child: Child,
    port: u16,
}

impl Driver {
    /// None, and a line that says so, where there is no browser.
    pub(crate) fn start() -> Option<Self> {
        if !["chromedriver", "chromium"].iter().all(|name| in_path(name)) {
            skip("chromium and chromedriver are not both installed");
            return None;
        }
        let mut child =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = wait_for("chromedriver's port", || {
            let line = lines.next().unwrap().unwrap();
            let (_, rest) = line.split_once("started successfully on port ")?;
            rest.trim_end_matches('.').parse().ok()
        });
        // Its pipe is drained, or it would block.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, port })
    }

    /// A browser of its own: other cookies than the others'.
    pub(crate) async fn open(&self, origin: &str) -> Browser {
        let mut wanted = DesiredCapabilities::chrome();
        for argument in [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            // Whatever is not this machine cannot be reached.
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "--window-size=1280,1000",
        ] {
            wanted.add_arg(argument).unwrap();
        }
        // The first to install a provider has it installed; any is ring's.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let driver = WebDriver::new(format!("http://127.0.0.1:{}", self.port), wanted).await.unwrap();
        Browser { driver, origin: origin.to_owned() }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// A browser window.
pub(crate) struct Browser {
    driver: WebDriver,
    origin: String,
}

impl Browser {
    pub(crate) async fn go(&self, path: &str) {
        self.driver.goto(format!("{}{path}", self.origin)).await.unwrap();
    }

    /// A further tab of the same browser, at a path; it is the one in front.
    pub(crate) async fn tab(&self, path: &str) -> WindowHandle {
        let tab = self.driver.new_tab().await.unwrap();
        self.front(&tab).await;
        self.go(path).await;
        tab
    }

    /// Brings a tab to the front.
    pub(crate) async fn front(&self, tab: &WindowHandle) {
        self.driver.switch_to_window(tab.clone()).await.unwrap();
    }

    pub(crate) async fn reload(&self) {
        self.driver.refresh().await.unwrap();
    }

    pub(crate) async fn quit(self) {
        self.driver.quit().await.unwrap();
    }

    pub(crate) async fn path(&self) -> String {
        self.driver.current_url().await.unwrap().path().to_owned()
    }

    async fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        // A page that is just being replaced has no document to run it in.
        let answer = self.driver.execute(script, arguments).await;
        answer.map_or(Value::Null, |answer| answer.json().clone())
    }

    /// The text of the first match; empty where there is none.
    pub(crate) async fn text(&self, css: &str) -> String {
        let text = self.run(
            "const e = document.querySelector(arguments[0]); return e ? e.textContent.trim() : '';",
            vec![json!(css)],
        );
        text.await.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn count(&self, css: &str) -> usize {
        let count = self.run("return document.querySelectorAll(arguments[0]).length;", vec![json!(css)]).await;
        usize::try_from(count.as_u64().unwrap_or(0)).unwrap()
    }

    pub(crate) async fn attribute(&self, css: &str, name: &str) -> Option<String> {
        let script = "const e = document.querySelector(arguments[0]); return e && e.getAttribute(arguments[1]);";
        self.run(script, vec![json!(css), json!(name)]).await.as_str().map(str::to_owned)
    }

    pub(crate) async fn property(&self, css: &str, name: &str) -> Value {
        let script = "const e = document.querySelector(arguments[0]); return e ? e[arguments[1]] : null;";
        self.run(script, vec![json!(css), json!(name)]).await
    }

    pub(crate) async fn shown(&self, css: &str) -> bool {
        let script = "const e = document.querySelector(arguments[0]); return Boolean(e && e.offsetParent !== null);";
        self.run(script, vec![json!(css)]).await == json!(true)
    }

    /// Seconds that the live page has.
    pub(crate) async fn seconds(&self) -> u64 {
        let seconds = self.attribute("[data-watch]", "data-seconds").await;
        seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
    }

    /// The first match, as soon as there is one: what was clicked before may have led to another page.
    async fn find(&self, css: &str) -> WebElement {
        self.driver.query(By::Css(css)).wait(BOUND, LOOK).first().await.unwrap()
    }

    /// Really clicks, as a person would.
    pub(crate) async fn click(&self, css: &str) {
        let element = self.find(css).await;
        element.scroll_into_view().await.unwrap();
        element.click().await.unwrap();
    }

    /// Chooses a radio button by its label's place.
    pub(crate) async fn choose(&self, css: &str) {
        self.click(css).await;
    }

    pub(crate) async fn fill(&self, css: &str, value: &str) {
        let element = self.find(css).await;
        element.clear().await.unwrap();
        element.send_keys(value).await.unwrap();
    }

    /// Chooses a file.
    pub(crate) async fn upload(&self, css: &str, file: &Path) {
        self.find(css).await.send_keys(file.display().to_string()).await.unwrap();
    }

    /// Types into a field and leaves it.
    pub(crate) async fn change(&self, css: &str, value: &str) {
        let element = self.find(css).await;
        // Written over, not cleared first: WebDriver's clearing is a change of its own.
        element.send_keys(Key::Control + "a").await.unwrap();
        element.send_keys(value).await.unwrap();
        element.send_keys(Key::Tab).await.unwrap();
    }

    /// Puts a text into the editor at once, as a paste does.
    pub(crate) async fn write(&self, css: &str, text: &str) {
        let script = "const e = document.querySelector(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input', { bubbles: true }));";
        self.run(script, vec![json!(css), json!(text)]).await;
    }

    /// Chooses an option, as a person does from the list.
    pub(crate) async fn pick(&self, css: &str, value: &str) {
        let script = "const e = document.querySelector(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('change', { bubbles: true }));";
        self.run(script, vec![json!(css), json!(value)]).await;
    }

    /// Types on the keyboard, wherever the focus is.
    pub(crate) async fn keys(&self, keys: impl Into<TypingData>) {
        self.driver.action_chain().send_keys(keys).perform().await.unwrap();
    }

    /// A letter with Ctrl held.
    pub(crate) async fn control(&self, letter: char) {
        let keys = self.driver.action_chain().key_down(Key::Control).send_keys(letter.to_string());
        keys.key_up(Key::Control).perform().await.unwrap();
    }

    /// Whether the focus is on an element.
    pub(crate) async fn is_at(&self, css: &str) -> bool {
        let script = "return Boolean(document.activeElement && document.activeElement.matches(arguments[0]));";
        self.run(script, vec![json!(css)]).await == json!(true)
    }

    /// Goes on with the Tab key to an element; wherever the focus stops on the way must be seen.
    pub(crate) async fn tab_to(&self, css: &str) {
        for _ in 0..MAX_STOPS {
            self.keys(Key::Tab).await;
            let stop = self.run(include_str!("focus.js"), vec![json!(css)]).await;
            // The window's own controls have it between the page's end and its beginning.
            if stop.is_null() {
                continue;
            }
            assert_eq!(stop["seen"], true, "nobody sees where the focus is: {}", stop["what"]);
            if stop["there"] == true {
                return;
            }
        }
        panic!("{css} is not reached by {MAX_STOPS} times Tab");
    }

    /// What is downloaded from now on goes into a directory.
    pub(crate) async fn download_to(&self, dir: &Path) {
        let parameters = json!({ "behavior": "allow", "downloadPath": dir });
        self.driver.cdp().send_raw("Browser.setDownloadBehavior", parameters).await.unwrap();
    }

    /// Opens a file from disk.
    pub(crate) async fn open_file(&self, file: &Path) {
        self.driver.goto(format!("file://{}", file.display())).await.unwrap();
    }

    /// Addresses that the page has asked for beside itself.
    pub(crate) async fn asked(&self) -> Value {
        self.run("return performance.getEntriesByType('resource').map((r) => r.name);", Vec::new()).await
    }

    /// What an address answers, as text.
    pub(crate) async fn fetch(&self, path: &str) -> String {
        let script =
            "const [path, done] = arguments; fetch(path).then((a) => a.text()).then(done, (e) => done(String(e)));";
        let answer = self.driver.execute_async(script, vec![json!(path)]).await.unwrap();
        answer.json().as_str().unwrap_or_default().to_owned()
    }

    /// Sends a plan to be started, and does not wait for the answer.
    pub(crate) async fn start_plan(&self, yaml: &str) {
        let script = "const csrf = document.querySelector('input[name=csrf]').value; fetch('/api/v1/runs', \
                      { method: 'POST', keepalive: true, headers: { 'X-CSRF-Token': csrf, 'Content-Type': 'application/yaml' }, body: arguments[0] });";
        self.run(script, vec![json!(yaml)]).await;
    }

    /// The status of a post that the page's own script would send.
    pub(crate) async fn post(&self, path: &str, body: &str) -> u64 {
        let script = "const [path, body, done] = arguments; fetch(path, { method: 'POST', redirect: 'manual', body, \
                      headers: { 'Content-Type': 'application/x-www-form-urlencoded' } }).then((a) => done(a.status), (e) => done(String(e)));";
        let answer = self.driver.execute_async(script, vec![json!(path), json!(body)]).await.unwrap();
        answer.json().as_u64().unwrap_or_else(|| panic!("{path}: {}", answer.json()))
    }

    /// Everything that the page loaded came from its own server.
    pub(crate) async fn asked_only_its_server(&self) {
        let loaded = self.asked().await;
        let foreign: Vec<&str> = loaded
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|url| !url.starts_with(&self.origin) && !url.starts_with("data:"))
            .collect();
        assert_eq!(foreign, [""; 0]);
    }

    /// The whole page at 1280 and 390, light and dark, under target/screenshots. No page may be wider than its window.
    pub(crate) async fn shoot(&self, name: &str) {
        let tools = self.driver.cdp();
        let send = async |command: &str, parameters: Value| tools.send_raw(command, parameters).await.unwrap();
        let dir = workspace().join("target/screenshots");
        std::fs::create_dir_all(&dir).unwrap();
        for width in [1280, 390] {
            let metrics = json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500 });
            send("Emulation.setDeviceMetricsOverride", metrics).await;
            for scheme in ["light", "dark"] {
                let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
                send("Emulation.setEmulatedMedia", media).await;
                let settled = include_str!("../../../orchestrator/web/tests/it/settled.js");
                self.driver.execute_async(settled, Vec::new()).await.unwrap();
                let overflow = self.run("return document.documentElement.scrollWidth - innerWidth;", Vec::new()).await;
                let size = send("Page.getLayoutMetrics", json!({})).await;
                let height = size["cssContentSize"]["height"].as_f64().unwrap().min(6000.0);
                let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
                let shot = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
                let shot = send("Page.captureScreenshot", shot).await;
                let file: PathBuf = dir.join(format!("{name}-{width}-{scheme}.png"));
                std::fs::write(file, decode(shot["data"].as_str().unwrap())).unwrap();
                let dim = self.run(include_str!("../../../orchestrator/web/tests/it/contrast.js"), Vec::new()).await;
                assert_eq!(dim, json!([]), "{name}, {width} px, {scheme}: too little contrast");
                assert!(overflow.as_i64().unwrap_or(0) <= 0, "{name} is {overflow} px wider than {width}");
            }
        }
        send("Emulation.clearDeviceMetricsOverride", json!({})).await;
        send("Emulation.setEmulatedMedia", json!({ "features": [] })).await;
    }
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.decode(text).unwrap()
}
