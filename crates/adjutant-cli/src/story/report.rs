//! What is said of stories at the end: what came of those that ran, and why others were not begun.
//!
//! Start at [`PrdSession::report`]; [`show`] is for one story of a run that went on.

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
    /// Adds what came of a run to what is reported at the end; returns whether its story passes.
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

/// What a program is told of stories.
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

/// A story that was not begun, and why.
#[derive(Serialize)]
struct StoryNotBegun {
    id: String,
    why: String,
}

/// Shows what came of the one story of a run that went on.
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
