//! Strict fake servers of the providers for the binary under test.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use adjutant_testkit::fake::{Api, FakeServer, RecordedRequest, RunningServer, Script};
use tokio::sync::oneshot;

use crate::support::rig::{Call, Rig};

pub(crate) const KEY: &str = "a-key-that-stays-secret";

/// A fake provider on a thread of its own, gone when it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    api: Api,
    #[cfg_attr(
        not(feature = "restate"),
        expect(dead_code, reason = "asked for requests on a cluster")
    )]
    running: Arc<RunningServer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Vec<RecordedRequest>>>,
}

impl Server {
    pub(crate) fn start(api: Api, script: Script) -> Self {
        Self::serve(api, FakeServer::new(api, script).key(KEY))
    }

    /// Starts a server that asks for no key, as one on the user's own machine.
    pub(crate) fn start_without_key(api: Api, script: Script) -> Self {
        Self::serve(api, FakeServer::new(api, script).without_key())
    }

    fn serve(api: Api, server: FakeServer) -> Self {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let running = Arc::new(server.start().await);
            tell.send(Arc::clone(&running)).unwrap();
            let _ = stopped.await;
            running.requests()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = thread::spawn(move || runtime.block_on(serve));
        let running = told.recv().unwrap();
        let url = format!("http://{}", running.address());
        Self { url, api, running, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the requests so far.
    #[cfg(feature = "restate")]
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.running.requests()
    }

    /// Ends the server and returns its recorded requests.
    pub(crate) fn stop(mut self) -> Vec<RecordedRequest> {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }

    /// Prepares a command that knows the server as `fake/priced`, with a key that fits.
    pub(crate) fn call<'rig>(&self, rig: &'rig Rig, args: &[&str]) -> Call<'rig> {
        configure(rig, &self.url, wire(self.api));
        rig.call(args).env("FAKE_KEY", KEY)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const fn wire(api: Api) -> &'static str {
    match api {
        Api::Anthropic => "anthropic",
        Api::Chat => "chat",
        Api::Responses => "responses",
        Api::Gemini => "gemini",
    }
}

/// Makes an address the provider `fake`, whose key is in `FAKE_KEY`.
pub(crate) fn configure(rig: &Rig, url: &str, wire: &str) {
    let folder = rig.home().join(".config/adjutant");
    std::fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "[providers.fake]\nbase_url = \"{url}\"\nwire = \"{wire}\"\nkey_env = \"FAKE_KEY\"\n\
         [models.\"fake/priced\"]\nwindow = 100000\nmax_output = 4000\n\
         price = {{ input = 2.0, output = 10.0, cache_read = 0.2, cache_write = 2.5 }}\n"
    );
    std::fs::write(folder.join("config.toml"), config).unwrap();
}
