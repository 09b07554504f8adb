//! The way through the interface in a real browser: set-up link, login, runs, users, tokens, logout.

use analysis::export::Export;

use crate::driver::Browser;
use crate::listener::Served;
use crate::router::ID;
use crate::samples;
use crate::source::Runs;

const PASSWORD: &str = "a few words for a test";
const NEW: &str = "quite another password";

/// Runs that look different, each with an id of its own; the first is [`ID`].
fn exports() -> Vec<Export> {
    let makers =
        [samples::demo, samples::running, samples::incomplete, samples::cancelled, samples::empty, samples::hostile];
    let numbered = makers.into_iter().enumerate().map(|(index, make)| {
        let mut export = make();
        export.run.id = if index == 0 { ID.to_owned() } else { format!("0199c2a4-5b6e-7d10-9f3a-{index:012x}") };
        export
    });
    numbered.collect()
}

async fn log_in(browser: &Browser, name: &str, password: &str) {
    browser.fill("input[name=name]", name).await;
    browser.fill("input[name=password]", password).await;
    browser.submit("/login").await;
}

async fn choose_password(browser: &Browser, password: &str) {
    browser.fill("input[name=password]", password).await;
    browser.fill("input[name=repeated]", password).await;
    browser.click(".door button").await;
}

/// Loaded and quiet: nothing on the console but the answers that are not 200.
async fn is_well(browser: &Browser) {
    browser.asked_nobody_else().await;
    let console = browser.console(&["the server responded with a status of"]).await;
    assert!(console.is_empty(), "{console:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_sets_up_and_a_viewer_may_only_look() {
    let served = Served::start(Runs::new(exports(), None), None).await;
    let base = format!("http://{}", served.address);
    let Some(browser) = Browser::start(&base).await else { return served.stop().await };

    browser.goto("/login").await;
    browser.shows("There is no administrator yet").await;
    browser.shoot("login-nobody").await;
    browser.goto(&served.app.set_up_link().unwrap()).await;
    browser.shoot("setup").await;
    browser.fill("input[name=name]", "boss").await;
    choose_password(&browser, PASSWORD).await;
    browser.arrives_at("/").await;
    let zone = browser.find("tbody time").await.text().await.unwrap();
    assert!(zone.starts_with("2026-"), "{zone}");
    browser.shoot("runs").await;
    is_well(&browser).await;

    let administered = administer(&browser).await;
    use_runs(&browser).await;
    use_tokens(&browser).await;
    browser.goto("/account").await;
    browser.shoot("account").await;
    is_well(&browser).await;

    browser.submit("/logout").await;
    browser.arrives_at("/login").await;
    browser.goto("/users").await;
    log_in(&browser, "boss", "wrong").await;
    browser.shows("There is no such user with this password.").await;
    browser.shoot("login").await;
    log_in(&browser, "boss", PASSWORD).await;
    browser.arrives_at("/users").await;
    browser.submit("/logout").await;

    browser.goto(administered.strip_prefix(&base).unwrap()).await;
    browser.shoot("password").await;
    choose_password(&browser, NEW).await;
    look_only(&browser).await;
    browser.submit("/logout").await;
    is_well(&browser).await;
    browser.end().await;
    served.stop().await;
}

/// Adds a viewer; gives the link for the password.
async fn administer(browser: &Browser) -> String {
    browser.click("nav.pages a[href='/users']").await;
    browser.fill("form[action='/users'] input[name=name]", "carol").await;
    browser.submit("/users").await;
    let link = browser.find("#secret").await.text().await.unwrap();
    browser.shoot("users").await;
    browser.click("a[aria-label='Remove carol']").await;
    browser.shoot("remove-user").await;
    browser.click("a.button").await;
    browser.arrives_at("/users").await;
    is_well(browser).await;
    link
}

async fn use_runs(browser: &Browser) {
    browser.goto(&format!("/runs/{ID}")).await;
    browser.click("#note ~ details summary").await;
    browser.fill("textarea", "Node 3 had a failed disk.\n<img src=x onerror=alert(1)> is text.").await;
    browser.submit(&format!("/runs/{ID}/note")).await;
    browser.shows("<img src=x onerror=alert(1)> is text.").await;
    browser.find("html[data-charts]").await;
    browser.shoot("run").await;
    is_well(browser).await;
    browser.goto("/?state=complete").await;
    browser.goto(&format!("/runs/{ID}/delete")).await;
    browser.shoot("delete-run").await;
    browser.click("button.danger").await;
    browser.arrives_at("/").await;
    browser.shows("The run demo was deleted.").await;
    browser.goto(&format!("/runs/{ID}")).await;
    browser.shows("No such run").await;
    browser.shoot("no-such-run").await;
}

async fn use_tokens(browser: &Browser) {
    browser.click("nav.pages a[href='/tokens']").await;
    browser.fill("form[action='/tokens'] input[name=name]", "nightly export").await;
    browser.submit("/tokens").await;
    let token = browser.find("#secret").await.text().await.unwrap();
    assert_eq!(token.len(), 43);
    browser.shoot("tokens").await;
    browser.click("button[aria-label='Revoke nightly export']").await;
    browser.shows("The token was revoked").await;
    is_well(browser).await;
}

/// What a viewer meets.
async fn look_only(browser: &Browser) {
    browser.arrives_at("/").await;
    let text = browser.text().await;
    assert!(!text.contains("Users") && !text.contains("Delete"), "{text}");
    browser.shoot("runs-viewer").await;
    browser.goto("/users").await;
    browser.shows("carol may look at runs and reports").await;
    browser.shoot("for-administrators").await;
}
