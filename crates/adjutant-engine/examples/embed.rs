//! Delegates two tasks from another program, without the command line.
//!
//! Run it with `cargo run -p adjutant-engine --example embed`; it needs no key and no network.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use adjutant_core::schema::TaskSpec;
use adjutant_core::{Event, Preset, Timestamp};
use adjutant_engine::{Archive, Engine, EngineSetup, RunHost};
use adjutant_model::ScriptedModel;
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::{RunView, TimedEvent};

/// A real one is `open_model("anthropic/…", &Sources::from_vars(|name| std::env::var(name).ok()))`.
const SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = 'Glob'\nargs = { pattern = '*.md' }\n\
                      [[turn]]\ntext = '{{label}}: {{result | lines}} documents'\n";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = Arc::new(ScriptedModel::from_toml(SCRIPT)?);
    let engine = Engine::new(EngineSetup::new(Preset::Scout.policy(), model, "."))?;
    let tasks =
        [TaskSpec::new("one", "Count the documents")?, TaskSpec::new("two", "Count them again")?];
    let briefs = engine.briefs(&tasks);

    let view = Rc::new(RefCell::new(RunView::default()));
    let fold = Rc::clone(&view);
    let state = tempfile::tempdir()?;
    let staff = RunHost::unattended(Archive::open(&state.path().join("state"))?.storage())
        .with_reporter(move |at: Timestamp, wall_ms: u64, event: &Event| {
            fold.borrow_mut().apply(TimedEvent::new(at, wall_ms, event))
        });
    engine.delegate(briefs, None, staff).await?;

    #[expect(clippy::print_stdout, reason = "an example shows what it has")]
    {
        println!("{}", CallResults::of_run(&view.borrow()).markdown(&ResultOptions::default()));
    }
    Ok(())
}
