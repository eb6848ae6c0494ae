//! Chooses the model of a story: the typed one, otherwise the one that the PRD suggests (with consent, or if it is in
//! `models_allowed`), otherwise the default.

use adjutant_engine::model_of_file;
use adjutant_formats::prd::{Prd, Story};
use adjutant_view::sanitize;

use super::consent::PrdConsent;
use crate::exit::Failure;
use crate::output::say;
use crate::wiring::{ChosenModel, ModelSetup};

/// The models that the stories of a PRD can use.
pub(super) struct StoryModels {
    wiring: ModelSetup,
    /// The default model, or why there is none.
    usual: Result<ChosenModel, Failure>,
    /// Whether the default was typed with `--model`; then suggestions of the PRD do not count.
    is_typed: bool,
    /// The models that project files may choose.
    allowed: Vec<String>,
}

impl StoryModels {
    /// Fails if there is no default model and an open story suggests none that may be used.
    pub(super) fn new(
        usual: Result<ChosenModel, Failure>,
        wiring: ModelSetup,
        is_typed: bool,
        allowed: &[String],
        (prd, consent): (&Prd, &PrdConsent),
    ) -> Result<Self, Failure> {
        let models = Self { wiring, usual, is_typed, allowed: allowed.to_owned() };
        let is_left = |story: &&Story| !story.passes && story.parent().is_none();
        let mut left = prd.stories().iter().filter(is_left);
        match &models.usual {
            Ok(usual) => usual.remarks.iter().for_each(|it| say(&format!("adjutant: {it}"))),
            Err(_) if left.all(|story| models.suggested_model(story, consent).is_some()) => {}
            Err(failure) => return Err(failure.clone()),
        }
        Ok(models)
    }

    /// Returns the model that the PRD suggests for a story, if it may be used.
    fn suggested_model<'story>(
        &self,
        story: &'story Story,
        consent: &PrdConsent,
    ) -> Option<&'story str> {
        let wish = story.suggested_model.as_deref().filter(|_| !self.is_typed)?;
        let is_allowed =
            || matches!(model_of_file(wish, self.running(), false, &self.allowed), Ok(Some(_)));
        (consent.is_given() || is_allowed()).then_some(wish)
    }

    fn running(&self) -> Option<&str> {
        self.usual.as_ref().ok().map(|usual| usual.model.spec().name.as_str())
    }

    /// Chooses the model of a story, and prints it if it is not the default.
    pub(super) fn choose_for(
        &self,
        story: &Story,
        consent: &PrdConsent,
    ) -> Result<ChosenModel, Failure> {
        let Some(wish) = self.suggested_model(story, consent) else { return self.default_choice() };
        let (id, shown) = (&story.id, sanitize::line(wish));
        match (self.open(wish), &self.usual) {
            (Ok(chosen), _) => {
                say(&format!("adjutant: {id} uses the model {shown}, as the PRD suggests"));
                chosen.remarks.iter().for_each(|it| say(&format!("adjutant: {it}")));
                Ok(chosen)
            }
            (Err(failure), Ok(usual)) => {
                let name = &usual.model.spec().name;
                say(&format!(
                    "adjutant: the PRD suggests the model {shown} for {id}, which cannot be used, so {name} is used: {failure}"
                ));
                Ok(usual.clone())
            }
            (Err(failure), Err(_)) => Err(Failure::new(
                failure.exit,
                format!(
                    "the PRD suggests the model {shown} for {id}, which cannot be used: {failure}"
                ),
            )),
        }
    }

    fn default_choice(&self) -> Result<ChosenModel, Failure> {
        self.usual.clone()
    }

    fn open(&self, wish: &str) -> Result<ChosenModel, Failure> {
        // `wish` has already checked that the suggestion may be used.
        match model_of_file(wish, self.running(), true, &self.allowed).map_err(Failure::usage)? {
            Some(name) => self.wiring.choose(Some(&name)),
            None => self.default_choice(),
        }
    }
}
