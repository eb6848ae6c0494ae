//! Prints the outcomes of stories, and why others were skipped.
//!
//! Start at [`PrdSession::report`]; [`show`] is for the story of a resumed run.

use adjutant_view::RunView;
use adjutant_view::story::{StoriesJson, StoryReport, json, render};
use serde::Serialize;

use super::{PrdSession, report_placement, with_flags};
use crate::args::ResultFormat;
use crate::execute::DisplayOptions;
use crate::exit::{Exit, Failure};
use crate::hints::completed;
use crate::output::{print, print_json};
use crate::results::WorkPlacement;

impl PrdSession<'_> {
    /// Adds the report of a run, to be printed at the end. Returns whether its story passes.
    pub(super) fn add_report(
        &mut self,
        view: &RunView,
        placed: WorkPlacement,
        add: impl FnOnce(&mut StoryReport),
    ) -> bool {
        let Some(mut report) = StoryReport::of(view).map(|it| with_flags(it, view)) else {
            return false;
        };
        add(&mut report);
        report_placement(&mut report, placed);
        let passes = report.passes;
        self.reports.push(report);
        passes
    }

    pub(super) fn report(&self, exit: Exit) -> Result<(), Failure> {
        if self.args.work.events {
            return Ok(());
        }
        if self.form == ResultFormat::Json {
            let left =
                |(id, why): &(String, String)| StoryNotBegun { id: id.clone(), why: why.clone() };
            return print_json(&StoriesDocument {
                prd: Some(self.file.path().display().to_string()),
                exit: Some(exit.code()),
                not_begun: self.left.iter().map(left).collect(),
                all: json(&self.reports),
            });
        }
        if !self.reports.is_empty() {
            print(&completed(&render(&self.reports)))?;
        }
        for (id, why) in &self.left {
            print(&format!("{id}: not begun, {why}\n"))?;
        }
        Ok(())
    }
}

/// The JSON document about stories.
#[derive(Serialize)]
struct StoriesDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    prd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<u8>,
    not_begun: Vec<StoryNotBegun>,
    #[serde(flatten)]
    all: StoriesJson,
}

/// A story that was skipped, and why.
#[derive(Serialize)]
struct StoryNotBegun {
    id: String,
    why: String,
}

/// Prints the report of the story of a resumed run.
pub(crate) fn show(report: &StoryReport, showing: &DisplayOptions) -> Result<(), Failure> {
    match showing.form {
        _ if showing.events => Ok(()),
        ResultFormat::Json => print_json(&StoriesDocument {
            prd: None,
            exit: None,
            not_begun: Vec::new(),
            all: json(std::slice::from_ref(report)),
        }),
        ResultFormat::Markdown => print(&completed(&render(std::slice::from_ref(report)))),
    }
}
