//! A browser, driven over the pipe of its developer tools: JSON objects with a zero byte behind each.

use crate::chromium::{self, Chromium};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Nothing that is asked of the browser takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. It ends with the value.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    calls: u64,
    session: String,
    /// What the page's console and policy complained about.
    pub(crate) complaints: Vec<String>,
    loaded: bool,
    home: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// One with an empty page; `None`, with the reason printed, where it cannot be had.
    pub(crate) fn start() -> Option<Self> {
        match chromium::unpacked() {
            Ok(chromium) => Some(Self::of(&chromium)),
            Err(why) => {
                println!("skipped: Chromium cannot be had from Debian: {why:#}");
                None
            }
        }
    }

    fn of(chromium: &Chromium) -> Self {
        let home = TempDir::new().unwrap();
        let mut child = command(chromium, home.path()).spawn().unwrap();
        let (to, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, from) = channel();
        thread::spawn(move || {
            let messages = BufReader::new(output).split(0);
            let messages = messages.map_while(Result::ok).filter_map(|bytes| serde_json::from_slice(&bytes).ok());
            messages.map_while(|message: Value| tell.send(message).ok()).for_each(drop);
        });
        let session = String::new();
        let mut browser = Self { child, to, from, calls: 0, session, complaints: Vec::new(), loaded: false, home };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and waits for its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        // Where it has ended, the answer says why.
        let _ = self.to.write_all(&bytes);
        loop {
            let answer = self.next();
            if answer["id"] == json!(self.calls) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn next(&mut self) -> Value {
        let said = || fs::read_to_string(self.home.path().join("said")).unwrap_or_default();
        let message = self.from.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{why}: {}", said()));
        let told = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(told["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") => self.complaints.push(told["args"].to_string()),
            Some("Log.entryAdded") => self.complaints.push(told["entry"].to_string()),
            Some("Page.javascriptDialogOpening") => self.complaints.push(told.to_string()),
            Some("Page.loadEventFired") => self.loaded = true,
            _ => {}
        }
        message
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, page: &Path) {
        self.loaded = false;
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while !self.loaded {
            self.next();
        }
    }

    /// The value of an expression on the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", wanted);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The same as text.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        let kind = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let down = json!({ "type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// A screen of this size, in the colours asked for, and for this medium.
    pub(crate) fn screen(&mut self, width: u32, scheme: &str, medium: &str) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": medium, "features": features }));
    }

    /// Keeps a picture of the whole page.
    pub(crate) fn picture(&mut self, name: &str) {
        let shot = json!({ "format": "png", "captureBeyondViewport": true });
        self.keep("Page.captureScreenshot", shot, &format!("{name}.png"));
    }

    /// Keeps the page as it is printed.
    pub(crate) fn print(&mut self, name: &str) {
        let paper = json!({ "printBackground": false, "paperWidth": 8.27, "paperHeight": 11.69 });
        self.keep("Page.printToPDF", paper, &format!("{name}.pdf"));
    }

    fn keep(&mut self, method: &str, parameters: Value, file: &str) {
        let made = self.call(method, parameters);
        let bytes = STANDARD.decode(made["data"].as_str().unwrap()).unwrap();
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(file), bytes).unwrap();
    }
}

/// The pipe's ends are the files 3 and 4 of the browser.
fn command(chromium: &Chromium, home: &Path) -> Command {
    let fonts = home.join("fonts.conf");
    let (folder, cache) = (chromium.fonts.display(), home.join("fonts").display().to_string());
    fs::write(&fonts, format!("<fontconfig><dir>{folder}</dir><cachedir>{cache}</cachedir></fontconfig>")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#, "sh"]);
    command.arg(&chromium.program);
    command.args(["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "about:blank"]);
    command.arg(format!("--user-data-dir={}", home.display()));
    command.env("LD_LIBRARY_PATH", &chromium.libraries).env("FONTCONFIG_FILE", &fonts).env("HOME", home);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(home.join("said")).unwrap());
    command
}
